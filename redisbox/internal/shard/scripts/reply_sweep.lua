#!lua flags=allow-oom
-- Lists or removes expired reply slots, in the order in which they expired.
--
-- KEYS: the bucket
-- ARGV: floor, fence, session, turn, what, limit
-- Result: head; for each slot id, when it ended
-- Uses: reply_bucket session time
--
-- what: l list, s sweep. Sweeping notifies no waiting process: each has its own timer.

local over = call('ZRANGEBYSCORE', ends, '-inf', now, 'WITHSCORES', 'LIMIT', 0, ARGV[6])
if ARGV[5] == 's' then
  for i = 1, #over, 2 do
    call('HDEL', slots, over[i])
    call('ZREM', ends, over[i])
  end
end
local answer = { 'ok', pack('<ddd', now, wall, term) }
for i = 1, #over do -- there may be more than unpack can take
  answer[i + 2] = over[i]
end
call('HSET', meta, 'state', pack('<ddd', now, offset, term))
if session ~= '' then
  call('HSET', meta, 's:' .. session, pack('<d', turn) .. cmsgpack.pack(answer))
end
return answer
