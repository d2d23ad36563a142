#!lua flags=allow-oom
-- Removes the dead letters with the given ids permanently.
--
-- KEYS: the shard
-- ARGV: queue, floor, fence, session, turn; for each dead letter id
-- Result: head; how many were removed
-- Uses: head session time shard entry bundle order priority strict retention ttl dead advance advance_first

local removals = 0
for i = 6, #ARGV do
  removals = removals + engine.discard(ARGV[i])
  engine.madeRoom()
end
return engine.finish(nil, removals)
