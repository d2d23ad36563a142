-- The end of the short way: the state is written back, those who listen are told
-- that there is work or an earlier deadline, and the answer is returned.
-- Announcing must not fail: what was done is done. memory is what a repeated call
-- needs.

if short then
  local ready = 0
  if wantsReady ~= 0 then
    ready = call('LLEN', pending) + (hasReturned ~= 0 and call('ZCARD', KEYS[3]) or 0)
    if maxInFlight > 0 then
      ready = math.min(ready, maxInFlight - (call('ZCARD', invisible) - hauls + hauled))
    end
  end
  if ready > 0 then
    wantsReady = 0
    redis.pcall('SPUBLISH', sub(meta, 1, -5) .. 'wake', 'ready ' .. ready)
  elseif wantsDue ~= 0 and next < nextBefore then
    redis.pcall('SPUBLISH', sub(meta, 1, -5) .. 'wake', format('due %.0f', next))
  end
  short[1], short[2] = 'ok', pack('<dddddd', now, wall, next, version, term, forwards ~= 0 and call('ZCARD', KEYS[14]) or 0)
  local after = pack(STATE, now, offset, term, last, death, bytes, next, wantsReady, wantsDue, hasReturned, hauls, hauled)
  if session ~= '' then
    call('HSET', meta, 'state', after, 's:' .. session, pack('<d', turn) .. memory)
  else
    call('HSET', meta, 'state', after)
  end
  return short
end
