#!lua flags=allow-oom
-- Ends the forwarding of dead letters to another queue.
--
-- KEYS: the shard
-- ARGV: queue, floor, fence, session, turn; for each letter id, what
-- Result: head
-- Uses: head again time shard entry haul order fate advance begin
--
-- What to do: m the letter is in the other queue, and leaves this one; k it could
-- not be moved, and is kept.


for i = 6, #ARGV, 2 do
  if ARGV[i + 1] == 'k' then
    call('ZREM', shard.outbox, ARGV[i])
    shard.next = 0 -- retention may have something to say
  elseif call('ZSCORE', shard.outbox, ARGV[i]) then
    engine.discard(ARGV[i])
    engine.madeRoom()
  end
end
engine.advance()
return engine.finish(nil)
