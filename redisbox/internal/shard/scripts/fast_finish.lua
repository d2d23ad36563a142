-- The end of the fast path: it writes the state, announces ready messages or an earlier
-- deadline, and returns the answer. Announcing must not fail: the changes are made.
-- memory is what the session stores for a repeated call.

if fast then
  local ready = 0
  if wantsReady ~= 0 and not paused then
    ready = call('LLEN', pending) + (hasReturned ~= 0 and call('ZCARD', KEYS[3]) or 0)
      + (prioritized and call('ZCARD', KEYS[23]) or 0)
    if maxInFlight > 0 then
      ready = math.min(ready, maxInFlight - (call('ZCARD', invisible) - bundleCount + bundledCount))
    end
  end
  if ready > 0 then
    wantsReady = 0
    redis.pcall('SPUBLISH', sub(meta, 1, -5) .. 'wake', 'ready ' .. ready)
  elseif wantsDue ~= 0 and next < nextBefore then
    redis.pcall('SPUBLISH', sub(meta, 1, -5) .. 'wake', format('due %.0f', next))
  end
  fast[1], fast[2] = 'ok', pack('<dddddd', now, wall, next, version, term, forwards ~= 0 and call('ZCARD', KEYS[14]) or 0)
  local after = pack(STATE, now, offset, term, last, death, bytes, next, wantsReady, wantsDue, hasReturned, bundleCount, bundledCount)
  if session ~= '' then
    call('HSET', meta, 'state', after, 's:' .. session, memory)
  else
    call('HSET', meta, 'state', after)
  end
  return fast
end
