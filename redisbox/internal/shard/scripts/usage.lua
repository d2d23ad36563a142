#!lua flags=allow-oom
-- Advances the shard, and counts.
--
-- KEYS: the shard
-- ARGV: queue, floor, fence, session, turn, wants
-- Result: head; a list of the numbers of ready, delayed, in-flight and dead
--   messages, of bytes and dedup keys, of the microseconds since the oldest ready
--   message could be delivered and the oldest dead letter died, 1 if the shard is
--   paused, and the number of unique keys; how many could be received now
-- Uses: head session time shard entry bundle order priority strict retention ttl dead advance advance_first
--
-- wants: 1 asks for announcements of earlier deadlines from now on, 2 for announcements
-- of messages too, 0 for neither; -1 is 0, and asks for the ages, which are 0 otherwise.

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
local function age(since)
  return since < INFINITE and math.max(shard.now - since, 0) or 0
end
local _, oldest, death
oldest, death = INFINITE, INFINITE
if wants < 0 then
  if shard.readyAge > 0 then
    _, oldest = engine.oldestReady()
  end
  _, death = engine.oldestDead()
end
return engine.finish(nil, { ready, late, engine.inFlight(), call('ZCARD', shard.dead),
  shard.bytes, call('HLEN', shard.dedup), age(oldest), age(death), shard.paused and 1 or 0,
  shard.keyed and call('HLEN', shard.holders) or 0 }, left)
