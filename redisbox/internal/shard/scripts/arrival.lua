#!lua flags=allow-oom
-- Tells whether messages have arrived from other queues, refuses them, or forgets their
-- arrivals.
--
-- KEYS: the shard
-- ARGV: queue, floor, fence, session, turn, what; for each message name
-- Result: head; a code for each message
-- Uses: head session time shard entry bundle order priority strict retention ttl dead advance advance_first
--
-- what: a ask; r refuse those that have not arrived; f forget, but not at once, because
-- another process may be about to add the same message. The codes: d it has arrived, f
-- it is refused, n neither. For names see send.lua.

local ARRIVAL, SLOW = 604800000000, 600000000 -- see advance.lua; how slow another process can be

local codes = {}
for i = 7, #ARGV do
  local name, refused = ARGV[i], '!' .. ARGV[i]
  local code = call('ZSCORE', shard.arrivals, name) and 'd' or call('ZSCORE', shard.arrivals, refused) and 'f' or 'n'
  if ARGV[6] == 'f' then
    local soon = shard.now - math.max(ARRIVAL, shard.window) + SLOW
    call('ZADD', shard.arrivals, 'XX', soon, name, soon, refused)
  elseif ARGV[6] == 'r' and code == 'n' then
    call('ZADD', shard.arrivals, shard.now, refused)
    code = 'f'
  end
  codes[#codes + 1] = code
end
return engine.finish(nil, concat(codes))
