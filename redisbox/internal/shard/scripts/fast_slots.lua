-- The fast path of reply slots: creates them together with the messages that name them,
-- as reply_slot.lua does without messages.
--
-- A bucket has its own time, see reply_bucket.lua. Here it is known if the server that
-- used the bucket last is the one that this script runs on.

if ARGV[13] ~= '0' and not repeated then
  local SLOT, EXPIRED_TTL = '<c1ddddHc0I4c0I4c0', 60000000 -- see reply_bucket.lua and reply_slot.lua
  local run, times = simple and call('HGET', meta, 'run'), {}
  for i = 1, ARGV[13] do
    local key, at = SLOT_KEYS + 3 * i - 2, SLOTS + 5 * (i - 1)
    local bucket = run and run ~= '' and call('HMGET', KEYS[key], 'state', 'run') or {}
    if not bucket[1] or bucket[2] ~= run then
      return { 'apart' }
    end
    local clock, offset, term = parse('<ddd', bucket[1])
    local count = call('HLEN', KEYS[key + 1])
    if term < tonumber(ARGV[at + 4]) or count + ARGV[13] > tonumber(ARGV[at + 2]) then
      return { 'apart' }
    end
    times[i] = math.max(clock, wall + offset)
    if count > 0 then
      for _, name in ipairs(call('ZRANGEBYSCORE', KEYS[key + 2], '-inf', times[i] - EXPIRED_TTL, 'LIMIT', 0, 2)) do
        call('HDEL', KEYS[key + 1], name)
        call('ZREM', KEYS[key + 2], name)
      end
    end
  end
  for i = 1, ARGV[13] do
    local key, at = SLOT_KEYS + 3 * i - 2, SLOTS + 5 * (i - 1)
    local id, due, waiter = ARGV[at], times[i] + ARGV[at + 1], ARGV[at + 3]
    call('ZADD', KEYS[key + 2], due, id)
    call('HSETNX', KEYS[key + 1], id, pack(SLOT, 'p', due, wall, wall + ARGV[at + 1], 0, #waiter, waiter, 0, '', 0, ''))
  end
end
