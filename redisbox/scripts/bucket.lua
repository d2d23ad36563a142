-- The beginning of every script that works on reply slots: who asks, and what the
-- bucket is like that the slots are in.
--
-- slots has a text for each slot, and ends their ids by the end of their time. A
-- slot packs its state, when it ends, and the wall times of its creation, its end
-- and its answer; then who waits for it, and the answer: failure, kind and body.
-- States are p pending, r resolved and c cancelled; a slot whose time is over is
-- expired, x, whatever is written there.

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
else -- it is empty, and begins now
  local time, server = call('TIME'), redis.pcall('INFO', 'server')
  clock, offset, term = time[1] * 1000000 + time[2], 0, fence
  call('HSET', meta, 'run', type(server) == 'string' and string.match(server, 'run_id:(%x+)') or '')
end
