-- The beginning of every script that works on reply slots: its arguments, and the state
-- of the bucket that the slots are in.
--
-- slots has a record for each slot, and ends their ids by when they expire. A record
-- packs the state, when the slot expires, and the wall times of its creation, its end
-- and its answer; then the waiting processes, and the answer: failure, kind and body.
-- States are p pending, r resolved and c cancelled; a slot that has expired is x,
-- whatever its record says.

local KEYS, ARGV = KEYS, ARGV -- locals are found faster than globals
local call, pack, parse = redis.call, struct.pack, struct.unpack
local sub, format, tonumber = string.sub, string.format, tonumber
local meta, slots, ends, sessions = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local SLOT = '<c1ddddHc0I4c0I4c0' -- and the body

local floor, fence, session, turn = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4])
local known = call('HMGET', meta, 'state', 's:' .. session)
local remembered = known[2]
local clock, offset, term
if known[1] then
  clock, offset, term = parse('<ddd', known[1])
else -- the bucket is new
  local time, server = call('TIME'), redis.pcall('INFO', 'server')
  clock, offset, term = time[1] * 1000000 + time[2], 0, fence
  call('HSET', meta, 'run', type(server) == 'string' and string.match(server, 'run_id:(%x+)') or '')
end
