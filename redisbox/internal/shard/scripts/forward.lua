#!lua flags=allow-oom
-- Ends the forwarding of dead letters to another queue.
--
-- KEYS: the shard
-- ARGV: queue, floor, fence, session, turn; for each dead letter id, death, what
-- Result: head
-- Uses: head session time shard entry bundle order priority strict retention ttl dead advance advance_first
--
-- what: m the dead letter is in the other queue, and leaves this one; k it could not be
-- moved, and is kept. A message that has come back since, and died again, has another
-- death and is passed over.

for i = 6, #ARGV, 3 do
  local here = tonumber(call('ZSCORE', shard.outbox, ARGV[i])) == tonumber(ARGV[i + 1])
  if here and ARGV[i + 2] == 'k' then
    call('ZREM', shard.outbox, ARGV[i])
    shard.next = 0 -- retention applies to it now
  elseif here then
    engine.discard(ARGV[i])
    engine.madeRoom()
  end
end
engine.advance()
return engine.finish(nil)
