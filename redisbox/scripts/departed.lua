#!lua flags=allow-oom
-- Says what has become of messages that were to move to another queue.
--
-- KEYS: the shard
-- ARGV: queue, floor, fence, session, turn; for each message id, nonce, what
-- Result: head; a letter for each message
-- Uses: head again time shard entry haul order fate advance begin
--
-- What to do: m it is in the other queue, and leaves this one; k it is not, and is
-- kept in its place; d it is damaged, and dies. The letters: s done, x somebody else
-- was faster.

local letters = {}
for i = 6, #ARGV, 3 do
  local e, what = engine.get(ARGV[i]), ARGV[i + 2]
  local moving = e.reason == 'moving' and e.nonce == tonumber(ARGV[i + 1])
  letters[#letters + 1] = moving and 's' or 'x'
  if moving then
    call('ZREM', shard.arrivals, '>' .. e.id) -- it may have stalled
    engine.unlease(e)
    e.reason, e.kind, e.nonce, e.hold = '', '', 0, 0
    if what == 'm' then
      engine.remove(e)
    elseif what == 'd' then
      e.failure = 'the stored bytes are not those that were sent'
      engine.dieOrWait(e, 'integrity', 0)
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
return engine.finish(nil, concat(letters))
