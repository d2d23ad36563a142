-- Adding messages.
--
-- A message with nothing special has no extra, or ""; otherwise it packs delay,
-- arrival, redrives, first, group, key, payload, failure and token. arrival is 1 for a
-- message that may have been sent here before, by somebody else, and 2 if besides it
-- must not come after one that was refused. The name of an arrival is its id and the
-- token, which tells the times apart that one message comes here; the name of one
-- that is not to arrive any more has a ! before it, see arrival.lua.
--
-- The letters: s sent, f full, and those of dedup.lua, each with more.

local EXTRA = '<ddddBc0Bc0Bc0Hc0Bc0'

-- supersede ends what is here of a message that comes back: it was moving away, and so
-- has arrived elsewhere. It reports false if it was not.
local function supersede(id)
  local e = call('HEXISTS', shard.state, id) == 1 and engine.get(id)
  if not e or e.reason ~= 'moving' then
    return false
  end
  call('ZREM', shard.arrivals, '>' .. id)
  engine.unlease(e)
  engine.remove(e)
  return true
end

-- admit returns the letter of a message that cannot be added, and what goes with
-- it; nil if it can.
local function admit(id, size, arrival, token, key, payload)
  if arrival ~= 0 then
    if call('ZSCORE', shard.arrivals, id .. token) or (call('HEXISTS', shard.data, id) == 1 and not supersede(id)) then
      return 'd', id
    elseif (arrival == 2 and shard.refused) or call('ZSCORE', shard.arrivals, '!' .. id .. token) then
      return 'f'
    end
  end
  if key ~= '' then
    local letter, detail = engine.judge(key, payload)
    if letter then
      return letter, detail
    end
  end
  if not engine.room(size) then
    shard.refused = true
    return 'f'
  end
end

-- add adds a message if that can be. It returns the letter for it, and what goes
-- with that.
local function add(id, record, extra)
  local delay, arrival, redrives, first, group, key, payload, failure, token = 0, 0, 0, 0, '', '', '', '', ''
  if extra ~= '' then
    delay, arrival, redrives, first, group, key, payload, failure, token = parse(EXTRA, extra)
  end
  local size = parse('<I4', record, 17)
  local letter, detail = admit(id, size, arrival, token, key, payload)
  if letter then
    return letter, detail
  end
  if key ~= '' then
    engine.remember(key, payload, id, '')
  end
  if arrival ~= 0 then
    engine.forgetArrivals(100)
    call('ZADD', shard.arrivals, shard.now, id .. token)
  end
  local e = engine.fresh(id, engine.tail(), size)
  call('HSET', shard.data, id, record)
  shard.bytes = shard.bytes + size
  shard.count = shard.count and shard.count + 1
  e.group, e.redrives, e.first, e.failure = group, redrives, first, failure
  e.kept = redrives > 0 or first > 0 or failure ~= '' -- otherwise there is nothing to tell about it yet
  shard.entries[id] = e
  engine.wait(e, shard.now + delay)
  engine.expireByCount()
  return 's'
end

-- send adds the messages in these arguments, plain ones and then special ones, in
-- order. It returns a letter for each, or nothing if all are added, and what goes
-- with the letters.
function engine.send(plain, special, stop)
  local letters, more = {}, {}
  local i = plain
  while i < stop do
    local letter, detail = add(ARGV[i], ARGV[i + 1], i < special and '' or ARGV[i + 2])
    i = i + (i < special and 2 or 3)
    letters[#letters + 1] = letter
    if detail then
      more[#more + 1] = pack('<Bc0', #detail, detail)
    end
  end
  letters = concat(letters)
  return string.find(letters, '[^s]') and letters or '', concat(more)
end
