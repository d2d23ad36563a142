-- Adding messages.
--
-- extra is "" for a message with nothing special, and otherwise packs delay,
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
  call('HSET', shard.data, id, pack('<dd', e.seq, shard.wall) .. record)
  shard.bytes = shard.bytes + size
  shard.count = shard.count and shard.count + 1
  e.group, e.redrives, e.failure = group, redrives, failure
  shard.entries[id] = e
  engine.wait(e, shard.now + delay)
  if e.aged == 0 and redrives == 0 and failure == '' then
    shard.changed[id] = nil -- there is nothing to tell about it yet
  end
  engine.expireByCount()
  return 's'
end

-- send adds the messages in these arguments, in order. It returns a letter for
-- each, or nothing if all are added, and what goes with the letters.
function engine.send(from, to)
  local letters, more = {}, {}
  for i = from, to, 3 do
    local letter, detail = add(ARGV[i], ARGV[i + 1], ARGV[i + 2])
    letters[#letters + 1] = letter
    if detail then
      more[#more + 1] = pack('<Bc0', #detail, detail)
    end
  end
  letters = table.concat(letters)
  return string.find(letters, '[^s]') and letters or '', table.concat(more)
end
