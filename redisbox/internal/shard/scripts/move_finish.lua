#!lua flags=allow-oom
-- Records the outcome of moves to another queue.
--
-- KEYS: the shard
-- ARGV: queue, floor, fence, session, turn; for each message id, nonce, what
-- Result: head; a code for each message
-- Uses: head session time shard entry bundle order priority strict retention ttl dead advance advance_first
--
-- what: m it is in the other queue, and leaves this one; k it is not, and is kept in its
-- place; d it is damaged, and dead-lettered. The codes: s done, x another process was
-- first.

local codes = {}
for i = 6, #ARGV, 3 do
  local e, what = engine.get(ARGV[i]), ARGV[i + 2]
  local moving = e.reason == 'moving' and e.nonce == tonumber(ARGV[i + 1])
  codes[#codes + 1] = moving and 's' or 'x'
  if moving then
    call('ZREM', shard.arrivals, '>' .. e.id) -- it may have stalled
    engine.unlease(e)
    e.reason, e.kind, e.nonce, e.hold, e.deadAt = '', '', 0, math.min(e.deadAt, 0), 0
    if what == 'm' then
      engine.remove(e)
    elseif what == 'd' then
      e.failure = 'the stored bytes are not those that were sent'
      engine.deadLetterOrWait(e, 'integrity', 0)
    else
      engine.wait(e, shard.now)
    end
    if shard.strict then
      engine.regroup(e.group)
    end
  end
end
engine.flush()
engine.expireByCount()
return engine.finish(nil, concat(codes))
