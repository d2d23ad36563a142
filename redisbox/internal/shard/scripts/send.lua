-- Sending messages.
--
-- A plain message has no extra, or ""; the extra of a special one packs delay, arrival,
-- redrives, first, group, key, bodyHash, failure, token, ttl, ends, priority, unique and how. A negative delay is a due time:
-- how far it is ahead of the server's clock is the delay. ends is when the life of a message that
-- comes from another queue is over. arrival is 1 for a message
-- that another process may have added before, and 2 if it also must not be added after
-- one that was refused. The name of an arrival is its id and the token, which tells apart
-- the times that one message arrives; the name of a refused arrival has a ! before it,
-- see arrival.lua. unique is the digest of the unique key, or "". how says what becomes of the message if
-- another one holds that: "" it is not sent; r the other is replaced; y it is sent, and holds no key.
--
-- The codes: s sent, f full, h the unique key is held and p the message that holds it was
-- replaced (detail: its id), k the table of unique keys is full, and those of dedup.lua with their details.

local EXTRA = '<ddddBc0Bc0Bc0Hc0Bc0dddBc0Bc0'

-- supersede removes a message that comes back while it is marked here as moving away: it
-- has arrived elsewhere. It reports false if it was not moving.
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

-- admit returns the code of a message that has arrived or was refused before, or whose dedup
-- key cannot be used, and its detail; nil if it may be added.
local function admit(id, arrival, token, key, bodyHash)
  if arrival ~= 0 then
    if call('ZSCORE', shard.arrivals, id .. token) or (call('HEXISTS', shard.data, id) == 1 and not supersede(id)) then
      return 'd', id
    elseif (arrival == 2 and shard.refused) or call('ZSCORE', shard.arrivals, '!' .. id .. token) then
      return 'f'
    end
  end
  if key ~= '' then
    return engine.checkKey(key, bodyHash)
  end
end

-- meet returns the code of a message with a unique key that cannot be added because of
-- that, and its detail; nil if it can be added.
local function meet(id, record, delay, ttl, unique, how)
  local holder = engine.holder(unique)
  if not holder then
    return engine.keysFull() and 'k' or nil, ''
  elseif how ~= 'r' then
    return 'h', holder
  end
  return engine.replace(holder, id, record, delay, ttl), holder
end

-- meetMoved is meet for a message that is moved here. One that is refused must not be
-- added later.
local function meetMoved(id, token, unique)
  local holder = engine.holder(unique)
  if holder then
    call('ZADD', shard.arrivals, shard.now, '!' .. id .. token)
    return 'h', holder
  elseif engine.keysFull() then
    shard.refused = true
    return 'f'
  end
end

-- add adds a message if possible. It returns the code, and its detail.
local function add(id, record, extra)
  local delay, arrival, redrives, first, group, key, bodyHash, failure, token, ttl, ends, priority, unique, how =
    0, 0, 0, 0, '', '', '', '', '', 0, 0, 0, '', ''
  if extra ~= '' then
    delay, arrival, redrives, first, group, key, bodyHash, failure, token, ttl, ends, priority, unique, how = parse(EXTRA, extra)
    if delay < 0 then
      delay = math.max(-delay - shard.wall, 0)
    end
  end
  local size = parse('<I4', record, 17)
  local code, detail = admit(id, arrival, token, key, bodyHash)
  if code then
    return code, detail
  end
  if unique ~= '' and arrival ~= 2 and how ~= 'y' then
    code, detail = meet(id, record, delay, ttl, unique, how)
    if key ~= '' and (code == 'h' or code == 'p') then
      engine.rememberKey(key, bodyHash, detail, '') -- a repeat does not replace again
    end
    if code then
      return code, code ~= 'f' and detail or nil
    end
  end
  if not engine.room(size) then
    shard.refused = true
    return 'f'
  end
  if unique ~= '' and arrival == 2 then
    code, detail = meetMoved(id, token, unique)
    if code then
      return code, detail
    end
  end
  if key ~= '' then
    engine.rememberKey(key, bodyHash, id, '')
  end
  if arrival ~= 0 then
    engine.forgetArrivals(100)
    call('ZADD', shard.arrivals, shard.now, id .. token)
  end
  local e = engine.fresh(id, engine.tail(), size)
  call('HSET', shard.data, id, record)
  shard.bytes = shard.bytes + size
  shard.count = shard.count and shard.count + 1
  e.group, e.redrives, e.first, e.failure, e.ttl, e.ends = group, redrives, first, failure, ttl, ends
  e.priority = shard.strict and 0 or priority -- it may come from a queue without strict groups
  if unique ~= '' and not (how == 'y' and engine.keysFull()) then
    e.unique = unique
    engine.holdKey(e)
  end
  if ends == 0 then
    engine.startLife(e, delay)
  end
  e.kept = redrives > 0 or first > 0 or failure ~= '' -- otherwise it needs no entry yet
  shard.entries[id] = e
  engine.wait(e, shard.now + delay)
  engine.expireByCount()
  return 's'
end

-- send adds the messages in these arguments, plain ones and then special ones, in order.
-- It returns a code for each, or nothing if all are added, and the details of the codes.
function engine.send(plain, special, stop)
  local codes, more = {}, {}
  local i = plain
  while i < stop do
    local code, detail = add(ARGV[i], ARGV[i + 1], i < special and '' or ARGV[i + 2])
    i = i + (i < special and 2 or 3)
    codes[#codes + 1] = code
    if detail then
      more[#more + 1] = pack('<Bc0', #detail, detail)
    end
  end
  codes = concat(codes)
  return string.find(codes, '[^s]') and codes or '', concat(more)
end
