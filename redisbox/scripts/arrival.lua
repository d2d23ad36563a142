#!lua flags=allow-oom
-- Tells whether messages have arrived, or forgets that they have.
--
-- KEYS: the shard
-- ARGV: queue, floor, fence, session, turn, what; for each message id
-- Result: head; how many of them have arrived
-- Uses: head again time shard entry haul order fate advance begin
--
-- What to do: a ask, f forget; not at once, because somebody else may be about to
-- add the same message.

local ARRIVAL, SLOW = 604800000000, 600000000 -- see send.lua; how slow somebody else can be

local known = 0
for i = 7, #ARGV do
  if call('ZSCORE', shard.arrivals, ARGV[i]) then
    known = known + 1
  end
  if ARGV[6] == 'f' then
    call('ZADD', shard.arrivals, 'XX', shard.now - math.max(ARRIVAL, shard.window) + SLOW, ARGV[i])
  end
end
return engine.finish(nil, known)
