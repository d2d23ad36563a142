-- The beginning of every script that works on a shard: its arguments, the
-- configuration and the state of the shard.
--
-- Words are those of the engine: a message has a place in the order of delivery and a
-- seq in the order of age, leases have a due and a nonce. Numbers are doubles, times are
-- microseconds on the shard's own time axis, and a seq is the time of arrival, moved up
-- where two would be equal. So a seq also tells the age.

local KEYS, ARGV = KEYS, ARGV -- locals are found faster than globals
local call, pack, parse = redis.call, struct.pack, struct.unpack
local sub, byte, char, format = string.sub, string.byte, string.char, string.format
local concat, unpack, tonumber = table.concat, unpack, tonumber
local meta, pending, invisible, delayed, data, state = KEYS[1], KEYS[2], KEYS[4], KEYS[5], KEYS[6], KEYS[7]
local INFINITE = math.huge
local ID, LOCATOR, HEAD = 26, 34, 48 -- lengths of ids, locators and heads of answers
local SENT_BYTES = 28 -- minimal length of a record, see encoding.go
local BUNDLE_HEAD, BUNDLE_CELL, BUNDLE_MAX = 32, 39, 16 -- see bundle.lua
local HOLD_FACTOR = 10 -- driver.MinHoldFactor
local CONFIG, STATE = '<ddddddddddddddd', '<dddddddddddd'

local floor, fence, session, turn = tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4], tonumber(ARGV[5])
local sessions = KEYS[17]
local known = call('HMGET', meta, 'queue', 'rules', 'state', 's:' .. session, 'schema')
if known[1] ~= ARGV[1] then
  return { known[1] and 'gone' or 'missing' }
end
local schema = tonumber(known[5] or 1)
if schema < SCHEMA or schema > NEWEST then
  return { 'schema', known[5] or '1' }
end
local keyed = schema >= KEYED -- see schema.go
local paused, prioritized = schema % 2 == 1, schema - (keyed and KEYED - SCHEMA or 0) >= PRIORITIZED
local remembered = known[4]

-- The configuration is packed by config.go. Of the state, last and death are the latest
-- seq and death that were given out, and next is a time before which no lease, delay or
-- retention period ends. wantsReady and wantsDue say that a process wants announcements
-- of messages and of earlier deadlines, and hasReturned that returned may have messages.
-- There are bundleCount bundles with bundledCount messages, see bundle.lua.
local version, strict, maxDeliveries, maxMessages, maxBytes, maxInFlight, maxDead, maxHold,
  window, dedupMax, readyAge, readyCount, deadAge, deadCount, forwards = parse(CONFIG, known[2])
-- maxHold is in nanoseconds. Up to 2^20 it is a multiple of the visibility, as an earlier
-- version wrote it; maxhold.Read reads both in the same way.
maxHold = (maxHold > 0 and maxHold <= 1048576) and 43200000000 or math.ceil(maxHold / 1000)
local clock, offset, term, last, death, bytes, next, wantsReady, wantsDue, hasReturned, bundleCount, bundledCount = parse(STATE, known[3])
local nextBefore = next
