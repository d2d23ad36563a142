#!lua flags=allow-oom
-- Tells whether messages have arrived, sees to it that they do not, or forgets that
-- they have.
--
-- KEYS: the shard
-- ARGV: queue, floor, fence, session, turn, what; for each message name
-- Result: head; a letter for each message
-- Uses: head again time shard entry haul order fate advance begin
--
-- What to do: a ask; r refuse those that have not arrived; f forget, but not at once,
-- because somebody else may be about to add the same message. The letters: d it has
-- arrived, f it is refused, n neither. For names see send.lua.

local ARRIVAL, SLOW = 604800000000, 600000000 -- see advance.lua; how slow somebody else can be

local letters = {}
for i = 7, #ARGV do
  local name, refused = ARGV[i], '!' .. ARGV[i]
  local letter = call('ZSCORE', shard.arrivals, name) and 'd' or call('ZSCORE', shard.arrivals, refused) and 'f' or 'n'
  if ARGV[6] == 'f' then
    local soon = shard.now - math.max(ARRIVAL, shard.window) + SLOW
    call('ZADD', shard.arrivals, 'XX', soon, name, soon, refused)
  elseif ARGV[6] == 'r' and letter == 'n' then
    call('ZADD', shard.arrivals, shard.now, refused)
    letter = 'f'
  end
  letters[#letters + 1] = letter
end
return engine.finish(nil, concat(letters))
