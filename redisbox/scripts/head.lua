-- The beginning of every script that works on a shard: who asks, what the shard
-- is like, and what time it is.
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
local ID, TICKET = 26, 34 -- how long ids and tickets are
local SENT_BYTES = 28 -- how long what was sent is at least, see record.go
local HAUL_HEAD, HAUL_CELL, HAUL_MOST = 32, 39, 16 -- of manifests, see haul.lua
local CONFIG, STATE = '<ddddddddddddddd', '<dddddddddddd'

local session = ARGV[4]
local known = call('HMGET', meta, 'queue', 'config', 'state', 's:' .. session)
if known[1] ~= ARGV[1] then
  return { known[1] and 'gone' or 'missing' }
end

-- A call that is repeated because its answer was lost gets that answer again: it
-- is what a session remembers of its latest turn, unless that is the business of
-- the script. The repeated call writes, so that a WAIT after it waits for what it
-- did the first time.
local repeated
if known[4] then
  local latest, turn = parse('<d', known[4]), tonumber(ARGV[5])
  if latest > turn then
    return { 'late' }
  elseif latest == turn then
    call('HSET', meta, 's:' .. session, known[4])
    repeated = sub(known[4], 9)
    if sub(repeated, 1, 1) ~= 's' then
      return cmsgpack.unpack(repeated)
    end
  end
end

-- The configuration is packed by config.go. Of the state, last and death are the
-- latest seq and death that were given out, and next is a time before which
-- nothing happens by itself. wantsReady and wantsDue say that somebody listens
-- for messages and for earlier deadlines, and hasReturned that there may be
-- something in returned. There are so many hauls with so many messages, see
-- haul.lua.
local version, strict, maxDeliveries, maxMessages, maxBytes, maxInFlight, maxDead, maxHold,
  window, dedupMax, readyAge, readyCount, deadAge, deadCount, forwards = parse(CONFIG, known[2])
local clock, offset, term, last, death, bytes, next, wantsReady, wantsDue, hasReturned, hauls, hauled = parse(STATE, known[3])
local nextBefore = next

-- After so long without a call, or if time seems to go back, ask whose clock this
-- is. Clocks of two servers may differ by so much.
local GAP, SKEW = 100000, 120000000

local time = call('TIME')
local wall = time[1] * 1000000 + time[2]
local now = wall + offset
if now < clock or now > clock + GAP then
  local floor, server = tonumber(ARGV[2]), redis.pcall('INFO', 'server')
  local run = type(server) == 'string' and string.match(server, 'run_id:(%x+)')
  if run and run ~= call('HGET', meta, 'run') then
    -- A server that was started after the last call is the old one again, or one
    -- that has loaded its files: its clock goes on. Any other, a replica that was
    -- promoted or a node that got this slot, may be ahead. Who has called before
    -- knows how much time has passed at least.
    local started = wall - string.match(server, 'uptime_in_seconds:(%d+)') * 1000000
    local promoted = not string.find(call('INFO', 'replication'), 'master_replid2:0000000000')
    if promoted or started < clock - offset then
      now = now - SKEW
      term = math.max(term, tonumber(ARGV[3])) + 1 -- it follows all that were before
    end
    now = math.max(now, floor)
    call('HSET', meta, 'run', run)
  elseif now < clock then
    now = floor
  end
  now = math.max(now, clock)
  offset = now - wall
end
if term < tonumber(ARGV[3]) then
  return { 'stale' } -- the caller has seen a later primary than this one
end

-- A session registered so long ago is not used any more.
local SESSION = 3600000000

if session ~= '' and not known[4] then
  for _, name in ipairs(call('ZRANGEBYSCORE', KEYS[17], '-inf', now - SESSION, 'LIMIT', 0, 16)) do
    call('ZREM', KEYS[17], name)
    call('HDEL', meta, 's:' .. name)
  end
  call('ZADD', KEYS[17], now, session)
end

-- What comes next may be a short way: most calls find nothing due, no strict
-- groups and nothing special, and then a few commands do. It leaves its answer
-- here, and nothing if it cannot go on; whatever it then did it has undone. It
-- makes no functions and no large tables, because that takes longer than all the
-- commands.
local short, memory
