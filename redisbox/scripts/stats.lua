#!lua flags=allow-oom
-- Lets happen what fell due, and counts.
--
-- KEYS: the shard
-- ARGV: queue, floor, fence, session, turn, wants
-- Result: head; a list of the numbers of ready, delayed, in-flight and dead
--   messages; how many could be received now
-- Uses: head again time shard entry haul order fate advance begin
--
-- wants is 1 to be told of earlier deadlines from now on, 2 to be told of
-- messages too, and 0 for neither.

local wants = tonumber(ARGV[6])
local late = call('ZCARD', shard.delayed)
local ready = engine.ready()
local left = math.max(engine.available(), 0)
if wants > 0 then
  shard.wantsDue = 1
end
if wants > 1 and left == 0 then
  shard.wantsReady = 1
end
return engine.finish(nil, { ready, late, engine.inFlight(), call('ZCARD', shard.dead) }, left)
