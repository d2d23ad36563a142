-- The fast path of reply slots: creates them together with the messages that name them, and
-- resolves them together with the acks of their requests, as reply_slot.lua does without.
--
-- A bucket has its own time, see reply_bucket.lua. Here it is known if the server that
-- used the bucket last is the one that this script runs on.

if SETTLE > SLOTS and not repeated then
  local SLOT, EXPIRED_TTL, MAX_ANNOUNCED = '<c1ddddHc0I4c0I4c0', 60000000, 4096 -- see reply_bucket.lua and reply_slot.lua
  local run, times = simple and call('HGET', meta, 'run'), {}
  for i = 1, ARGV[13] + ARGV[14] do
    local key, at = SLOT_KEYS + 3 * i - 2, SLOTS + 5 * (i - 1)
    local bucket = run and run ~= '' and call('HMGET', KEYS[key], 'state', 'run') or {}
    if not bucket[1] or bucket[2] ~= run then
      return { 'apart' }
    end
    local clock, offset, term = parse('<ddd', bucket[1])
    if term < tonumber(ARGV[at + 4]) then
      return { 'apart' }
    end
    times[i] = math.max(clock, wall + offset)
  end
  for i = 1, ARGV[13] do
    local key, at = SLOT_KEYS + 3 * i - 2, SLOTS + 5 * (i - 1)
    local count = call('HLEN', KEYS[key + 1])
    if count + ARGV[13] > tonumber(ARGV[at + 2]) then
      return { 'apart' }
    end
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
  for i = ARGV[13] + 1, ARGV[13] + ARGV[14] do
    local key, at = SLOT_KEYS + 3 * i - 2, SLOTS + 5 * (i - 1)
    local id, failure, kind, body = ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]
    local slot, code = call('HGET', KEYS[key + 1], id), 'n'
    if slot then
      local state, due, created, ending, _, waiters = parse(SLOT, slot)
      code = due <= times[i] and 'x' or state
      if code == 'p' then
        local answer = pack('<dddHI4c0I4c0', created, ending, wall, 0, #failure, failure, #kind, kind) .. body
        call('HSET', KEYS[key + 1], id, pack('<c1d', 'r', due) .. answer)
        local notice = pack('<c1d', 'r', due - times[i]) .. answer
        notice = pack('<H', #id) .. id .. (#notice > MAX_ANNOUNCED and '\0' or notice)
        for who in string.gmatch(waiters, '%S+') do
          redis.pcall('SPUBLISH', sub(KEYS[key], 1, -5) .. who, notice)
        end
        code = 's'
      end
    end
    resolved = resolved .. code
  end
end
