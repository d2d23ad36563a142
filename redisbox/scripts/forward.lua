#!lua flags=allow-oom
-- Ends the forwarding of dead letters to another queue.
--
-- KEYS: the shard
-- ARGV: queue, floor, fence, session, turn; for each letter id, death, what
-- Result: head
-- Uses: head again time shard entry haul order fate advance begin
--
-- What to do: m the letter is in the other queue, and leaves this one; k it could
-- not be moved, and is kept. A letter that has come back since, and died again, is
-- another's business.

for i = 6, #ARGV, 3 do
  local here = tonumber(call('ZSCORE', shard.outbox, ARGV[i])) == tonumber(ARGV[i + 1])
  if here and ARGV[i + 2] == 'k' then
    call('ZREM', shard.outbox, ARGV[i])
    shard.next = 0 -- retention may have something to say
  elseif here then
    engine.discard(ARGV[i])
    engine.madeRoom()
  end
end
engine.advance()
return engine.finish(nil)
