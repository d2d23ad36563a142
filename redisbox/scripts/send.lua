-- Adding messages.
--
-- A message with nothing special has no extra, or ""; otherwise it packs delay,
-- arrival, redrives, group, key, payload and failure. arrival is 1 for a message
-- that may have been sent here before, by somebody else under the same id.
--
-- The letters: s sent, f full, and those of dedup.lua, each with more.

local EXTRA = '<dddBc0Bc0Bc0Hc0'
local ARRIVAL = 604800000000 -- how long an arrival is remembered at least

-- admit returns the letter of a message that cannot be added, and what goes with
-- it; nil if it can.
local function admit(id, size, arrival, key, payload)
  if arrival ~= 0 and call('ZSCORE', shard.arrivals, id) then
    return 'd', id
  end
  if key ~= '' then
    local letter, detail = engine.judge(key, payload)
    if letter then
      return letter, detail
    end
  end
  return not engine.room(size) and 'f' or nil
end

-- add adds a message if that can be. It returns the letter for it, and what goes
-- with that.
local function add(id, record, extra)
  local delay, arrival, redrives, group, key, payload, failure = 0, 0, 0, '', '', '', ''
  if extra ~= '' then
    delay, arrival, redrives, group, key, payload, failure = parse(EXTRA, extra)
  end
  local size = parse('<I4', record, 17)
  local letter, detail = admit(id, size, arrival, key, payload)
  if letter then
    return letter, detail
  end
  if key ~= '' then
    engine.remember(key, payload, id, '')
  end
  if arrival ~= 0 then
    call('ZREMRANGEBYSCORE', shard.arrivals, '-inf', shard.now - math.max(ARRIVAL, shard.window))
    call('ZADD', shard.arrivals, shard.now, id)
  end
  local e = engine.fresh(id, engine.tail(), size)
  call('HSET', shard.data, id, record)
  shard.bytes = shard.bytes + size
  shard.count = shard.count and shard.count + 1
  e.group, e.redrives, e.failure = group, redrives, failure
  e.kept = redrives > 0 or failure ~= '' -- otherwise there is nothing to tell about it yet
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
