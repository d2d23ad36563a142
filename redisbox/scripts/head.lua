-- The beginning of every script that works on a shard: who asks, and what the
-- shard is like.
--
-- Words are those of the engine: a message has a place in the order of delivery
-- and a seq in the order of age, leases have a due and a nonce. Numbers are
-- doubles, times are microseconds on the shard's own axis, and a seq is the time
-- of arrival, moved up where two would be equal. So a seq tells the age too.

local KEYS, ARGV = KEYS, ARGV -- locals are found faster than globals
local call, pack, parse = redis.call, struct.pack, struct.unpack
local sub, byte, char, format = string.sub, string.byte, string.char, string.format
local concat, unpack, tonumber = table.concat, unpack, tonumber
local meta, pending, invisible, delayed, data, state = KEYS[1], KEYS[2], KEYS[4], KEYS[5], KEYS[6], KEYS[7]
local INFINITE = math.huge
local ID, TICKET, HEAD = 26, 34, 48 -- how long ids, tickets and heads of answers are
local SENT_BYTES = 28 -- how long what was sent is at least, see record.go
local HAUL_HEAD, HAUL_CELL, HAUL_MOST = 32, 39, 16 -- of manifests, see haul.lua
local HOLD_FACTOR = 10 -- driver.MinHoldFactor
local CONFIG, STATE = '<ddddddddddddddd', '<dddddddddddd'

local floor, fence, session, turn = tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4], tonumber(ARGV[5])
local sessions = KEYS[17]
local known = call('HMGET', meta, 'queue', 'rules', 'state', 's:' .. session, 'schema')
if known[1] ~= ARGV[1] then
  return { known[1] and 'gone' or 'missing' }
elseif known[5] ~= SCHEMA then
  return { 'schema', known[5] or '1' }
end
local remembered = known[4]

-- The configuration is packed by config.go. Of the state, last and death are the
-- latest seq and death that were given out, and next is a time before which
-- nothing happens by itself. wantsReady and wantsDue say that somebody listens
-- for messages and for earlier deadlines, and hasReturned that there may be
-- something in returned. There are so many hauls with so many messages, see
-- haul.lua.
local version, strict, maxDeliveries, maxMessages, maxBytes, maxInFlight, maxDead, maxHold,
  window, dedupMax, readyAge, readyCount, deadAge, deadCount, forwards = parse(CONFIG, known[2])
-- maxHold is in nanoseconds, and up to 2^20 a multiple of the visibility that an
-- earlier version wrote: both as driver.ReadMaxHold reads them.
maxHold = (maxHold > 0 and maxHold <= 1048576) and 43200000000 or math.ceil(maxHold / 1000)
local clock, offset, term, last, death, bytes, next, wantsReady, wantsDue, hasReturned, hauls, hauled = parse(STATE, known[3])
local nextBefore = next
