#!lua flags=allow-oom
-- Removes dead letters for ever, those with the ids given.
--
-- KEYS: the shard
-- ARGV: queue, floor, fence, session, turn; for each letter id
-- Result: head; how many were removed
-- Uses: head again time shard entry haul order fate advance begin


local removals = 0
for i = 6, #ARGV do
  removals = removals + engine.discard(ARGV[i])
  engine.madeRoom()
end
return engine.finish(nil, removals)
