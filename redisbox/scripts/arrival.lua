#!lua flags=allow-oom
-- Tells whether messages have arrived, or forgets that they have.
--
-- KEYS: the shard
-- ARGV: queue, floor, fence, session, turn, what; for each message id
-- Result: head; how many of them have arrived
-- Uses: head again time shard entry haul order fate advance begin
--
-- What to do: a ask, f forget.

local known = 0
for i = 7, #ARGV do
  if call('ZSCORE', shard.arrivals, ARGV[i]) then
    known = known + 1
  end
  if ARGV[6] == 'f' then
    call('ZREM', shard.arrivals, ARGV[i])
  end
end
return engine.finish(nil, known)
