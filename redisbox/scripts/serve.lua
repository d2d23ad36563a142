#!lua
-- Does what many callers ask for, in one step: settles deliveries, adds messages,
-- and leases messages, in this order.
--
-- KEYS: the shard
-- ARGV: queue, floor, fence, session, turn, settles, sends, nonce, most, others;
--   for each delivery to settle what, id, nonce, detail; for each message to add
--   id, record, extra; for each request max, bytes, visibility, waits
-- Result: head; results; for each message leased, in the order of the requests, id,
--   entry, sent
-- Uses: head shard entry order fate advance dedup settle send receive begin
--
-- settles and sends are how many there are. For what is asked, and the letters of
-- the answers, see settle.lua, send.lua and receive.lua. results packs how many
-- more could be received now; a letter for each delivery, or nothing if all are
-- settled; a letter for each message, or nothing if all are added; for each
-- request how many messages it got and why it got none; and what goes with the
-- letters of messages. Because it does not say
-- "allow-oom", a server that is out of memory refuses it; without messages to
-- add it is called as another script that says so.

local SETTLE = 11 -- where the first delivery to settle is in ARGV
local SEND = SETTLE + 4 * ARGV[6]
local RECEIVE = SEND + 3 * ARGV[7]
local NONCE, MOST = tonumber(ARGV[8]), tonumber(ARGV[9])
local ENTRY_BYTES = 86 -- how long an entry is at least, see entry.lua
local SENT_BYTES = 36 -- how long what was sent is at least, see record.go

local settled, added, counts -- the answers, as far as there are any
local answers, ids, left, taken = { '', '', '' }, {}, 0, 0

local simple = strict == 0 and readyCount == 0 and now < next and not repeated
local names = {} -- of the deliveries to settle
for i = SETTLE, SEND - 1, 4 do
  names[#names + 1] = ARGV[i + 1]
  simple = simple and ARGV[i] == 'a'
end
for i = SEND, RECEIVE - 1, 3 do
  simple = simple and ARGV[i + 2] == ''
end
local demand = 0
for i = RECEIVE, #ARGV, 4 do
  demand = demand + ARGV[i]
  simple = simple and ARGV[i + 2] ~= '0'
end

-- The short way of settling: nothing but acks.
if simple and #names > 0 then
  local acked, aged, letters, all, seen = {}, {}, {}, true, {}
  for i, found in ipairs(call('HMGET', state, unpack(names))) do
    local id = names[i]
    if found and #found >= ENTRY_BYTES and not seen[id] and (parse('<d', found, 25)) == tonumber(ARGV[SETTLE + 4 * i - 2]) then
      local size, isAged = parse('<dd', found, 49)
      bytes, seen[id] = bytes - size, true
      acked[#acked + 1] = id
      if isAged ~= 0 then
        aged[#aged + 1] = id
      end
      letters[i] = 's'
    else
      letters[i], all = 'x', false
    end
  end
  if #acked > 0 then
    call('ZREM', invisible, unpack(acked))
    call('HDEL', data, unpack(acked))
    call('HDEL', state, unpack(acked))
    if #aged > 0 then
      call('ZREM', KEYS[10], unpack(aged))
    end
  end
  settled = all and '' or table.concat(letters)
end

-- The short way of adding: nothing special about the messages. Those of one call
-- have one seq; their ids, which grow, tell them apart.
if simple and RECEIVE > SEND then
  local count = maxMessages > 0 and call('LLEN', pending) + call('ZCARD', KEYS[3]) + call('ZCARD', delayed) + call('ZCARD', invisible) or 0
  last = last < now and now or last + 1
  local arrived = pack('<dd', last, wall)
  local sent, tail, letters = {}, {}, nil
  for i = SEND, RECEIVE - 1, 3 do
    local size, n = parse('<I4', ARGV[i + 1], 17), #tail
    if (maxMessages > 0 and count >= maxMessages) or (maxBytes > 0 and bytes + size > maxBytes) then
      letters = (letters or string.rep('s', n)) .. 'f'
    else
      bytes, count = bytes + size, count + 1
      sent[2 * n + 1], sent[2 * n + 2] = ARGV[i], arrived .. ARGV[i + 1]
      tail[n + 1] = ARGV[i]
      letters = letters and letters .. 's'
    end
  end
  if #tail > 0 then
    call('HSET', data, unpack(sent))
    call('RPUSH', pending, unpack(tail))
    if readyAge > 0 and last + readyAge < next then
      next = last + readyAge
    end
  end
  added = letters or ''
end

-- The short way of leasing: messages are taken off the list, and those that are
-- not wanted put back; all of them if one cannot be delivered.
if simple and demand > 0 and hasReturned == 0 and (maxInFlight == 0 or maxInFlight - call('ZCARD', invisible) >= demand) then
  local wanted = demand
  if wanted > 16 then -- not much more than the answer may hold
    wanted = math.min(wanted, 16 + math.floor(MOST * call('LLEN', pending) / (bytes + 1)))
  end
  ids = call('LPOP', pending, wanted) or {}
  local sent, raw = {}, {}
  if #ids > 0 then
    sent, raw = call('HMGET', data, unpack(ids)), call('HMGET', state, unpack(ids))
  end
  local leases, states, size, earliest, unserved, good = {}, {}, 0, next, false, true
  counts = {}
  for i = RECEIVE, #ARGV, 4 do
    local got, length, visibility = 0, 0, tonumber(ARGV[i + 2])
    local max, most, due = tonumber(ARGV[i]), tonumber(ARGV[i + 1]), string.format('%.0f', now + visibility)
    local hold = maxHold > 0 and now + maxHold * visibility or 0
    while good and got < max and taken < #ids do
      local id, message, entry = ids[taken + 1], sent[taken + 1], raw[taken + 1]
      good = message and #message >= SENT_BYTES
        and (not entry or (#entry >= ENTRY_BYTES and (maxDeliveries == 0 or (parse('<d', entry, 17)) < maxDeliveries)))
      if not good then
        break
      end
      local bodySize = parse('<I4', message, 33)
      if (got > 0 and most > 0 and length + bodySize > most) or (taken > 0 and size + #message > MOST) then
        break
      end
      if entry then
        local deliveries, _, first = parse('<ddd', entry, 17)
        entry = string.sub(entry, 1, 16)
          .. pack('<dddd', deliveries + 1, NONCE + taken, first == 0 and wall or first, hold) .. string.sub(entry, 49)
      else
        local seq = parse('<d', message)
        entry = pack('<ddddddddddBBHH', seq, seq, 1, NONCE + taken, wall, hold, bodySize, 0, 0, 0, 0, 0, 0, 0)
      end
      local n = 2 * taken
      leases[n + 1], leases[n + 2], states[n + 1], states[n + 2] = due, id, id, entry
      n = n + taken + 3
      answers[n + 1], answers[n + 2], answers[n + 3] = id, entry, message
      taken, got, length, size = taken + 1, got + 1, length + bodySize, size + #message
    end
    if got > 0 and now + visibility < earliest then
      earliest = now + visibility
    end
    local cut = got == 0 and (taken < #ids or (wanted < demand and #ids == wanted))
    counts[#counts + 1] = string.char(got % 256, math.floor(got / 256), cut and 2 or 0)
    unserved = unserved or (got == 0 and ARGV[i + 3] == '1')
  end
  if good then
    counts, next = table.concat(counts), earliest
    if taken > 0 then
      call('ZADD', invisible, unpack(leases))
      call('HSET', state, unpack(states))
    end
  else
    counts, taken = nil, 0
  end
  if taken < #ids then
    local back = {}
    for i = #ids, taken + 1, -1 do
      back[#back + 1] = ids[i]
    end
    call('LPUSH', pending, unpack(back))
  end
  if good and (unserved or ARGV[10] == '1') then
    left = call('LLEN', pending)
    if maxInFlight > 0 then
      left = math.min(left, maxInFlight - call('ZCARD', invisible))
    end
    if left == 0 then
      wantsReady, wantsDue = 1, 1
    end
  end
end

if simple and (counts or demand == 0) then
  settled, added, counts = settled or '', added or '', counts or ''
  local results = pack('<HHHc0c0c0', #settled, #added, #counts, settled, added, counts)
  short, answers[3] = answers, pack('<d', left) .. results
  memory = 's' .. results .. table.concat(ids, '', 1, taken)
end

-- The long way.

-- A call whose answer was lost tells the same, and of the leases it made as far as
-- they are still the latest.
if repeated then
  local settledBytes, addedBytes, countsBytes, position = parse('<HHH', repeated, 2)
  local old = string.sub(repeated, position + settledBytes + addedBytes, position + settledBytes + addedBytes + countsBytes - 1)
  local n, first = 0, #repeated + 1
  for i = 1, countsBytes, 3 do
    first = first - 26 * (string.byte(old, i) + 256 * string.byte(old, i + 1))
  end
  counts, answers = '', {}
  for i = 1, countsBytes, 3 do
    local got = 0
    for _ = 1, string.byte(old, i) + 256 * string.byte(old, i + 1) do
      local id = string.sub(repeated, first + 26 * n, first + 26 * n + 25)
      local e, sent = engine.get(id), call('HGET', shard.data, id)
      if sent and e.nonce == NONCE + n then
        engine.show(answers, id, engine.encode(e), sent)
        got = got + 1
      end
      n = n + 1
    end
    counts = counts .. string.char(got % 256, math.floor(got / 256), string.byte(old, i + 2))
  end
  local results = pack('<HHH', settledBytes, addedBytes, countsBytes)
    .. string.sub(repeated, position, position + settledBytes + addedBytes - 1) .. counts
    .. string.sub(repeated, position + settledBytes + addedBytes + countsBytes, first - 1)
  return engine.finish(repeated, pack('<d', 0) .. results, unpack(answers))
end

-- Keys that have ended make room first; very many of them in more than one call.
if not simple and RECEIVE > SEND and engine.forget(shard.budget) and call('HLEN', shard.dedup) >= shard.dedupMax then
  return engine.again()
end

local more = ''
if not settled then
  settled = engine.settle(SETTLE, SEND - 1)
end
if not added then
  added, more = engine.send(SEND, RECEIVE - 1)
end
engine.advance()
left, counts, answers, ids = engine.receive(RECEIVE, NONCE, MOST, ARGV[10] == '1')
local results = pack('<HHHc0c0c0', #settled, #added, #counts, settled, added, counts) .. more
return engine.finish('s' .. results .. table.concat(ids), pack('<d', left) .. results, unpack(answers))
