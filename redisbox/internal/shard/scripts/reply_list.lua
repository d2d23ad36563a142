#!lua flags=allow-oom
-- Lists reply slots in the order in which they end, from a time on.
--
-- KEYS: the bucket
-- ARGV: floor, fence, session, turn, from, limit; for each slot that ends at that time and
--   was listed before seen
-- Result: head; 1 if more follow, or 0; for each slot id, when it ends, and the slot without
--   its answer, or nothing if there is none
-- Uses: reply_bucket time
--
-- An id in ends that has no slot remains of one that was discarded.

local MOST = 1048576 -- bytes of records that one call reads, and one record more
local limit, seen = tonumber(ARGV[6]), {}
for i = 7, #ARGV do
  seen[ARGV[i]] = true
end
local found = call('ZRANGEBYSCORE', ends, ARGV[5], '+inf', 'WITHSCORES', 'LIMIT', 0, limit + #ARGV - 5)
local answer, size, listed = { 'ok', pack('<ddd', now, wall, term), '0' }, 0, 0
for i = 1, #found, 2 do
  local id, text = found[i], ''
  if not seen[id] then
    if listed == limit or size > MOST then
      answer[3] = '1'
      break
    end
    local slot = call('HGET', slots, id)
    if slot then
      local state, due, created, ending, resolved = parse('<c1dddd', slot)
      if due <= now then
        state, resolved = 'x', 0
      end
      text = pack(SLOT, state, due - now, created, ending, resolved, 0, '', 0, '', 0, '')
      size = size + #slot
    end
    listed = listed + 1
    answer[3 * listed + 1], answer[3 * listed + 2], answer[3 * listed + 3] = id, found[i + 1], text
  end
end
call('HSET', meta, 'state', pack('<ddd', now, offset, term))
return answer
