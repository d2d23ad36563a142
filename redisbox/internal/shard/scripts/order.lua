-- Where messages wait. Without strict groups, pending is the list of the ready
-- messages in the order of their places, and returned has those that came back to an
-- earlier place than the tail. For messages with a priority see priority.lua, and for strict
-- groups strict.lua.
--
-- The elements of pending are locators: id, place, and a plus if there is an entry. A
-- message that has only been sent has no entry, and its place is nowhere else.
--
-- The oldest ready message is the head of pending or of ages. ages has, by when they
-- could first be delivered, the messages that are not where they arrived: those that
-- came back, were delayed or went to the tail, and all of a queue with strict groups.
-- Messages that are not ready any more may stay in ages until they reach its head.
--
-- The field aged of an entry is when the message could first be delivered, and negative
-- while the message is not in ages. 0 and, for messages in ages, 1 mean when it was sent.

local FIELDS = 1024 -- in one command: unpack fails beyond 8000, and splitting bundles changes 16 entries a receipt

-- flush writes changed entries and deletes removed messages.
function engine.flush()
  local fields = {}
  for id, e in pairs(shard.changed) do
    fields[#fields + 1] = id
    fields[#fields + 1] = engine.encode(e)
    if #fields == FIELDS then
      call('HSET', shard.state, unpack(fields))
      fields = {}
    end
  end
  if #fields > 0 then
    call('HSET', shard.state, unpack(fields))
  end
  shard.changed = {}
  if #shard.removed > 0 then
    call('HDEL', shard.data, unpack(shard.removed))
    call('HDEL', shard.state, unpack(shard.removed))
    shard.removed = {}
  end
end

-- sizeOf returns the size of a message's body.
function engine.sizeOf(id)
  local sent = call('HGET', shard.data, id)
  return sent and #sent >= SENT_BYTES and parse('<I4', sent, 17) or 0
end

-- get returns the entry of a message that has one. An unreadable entry is replaced by
-- a new one, so that the message stays in its order and is found damaged when it is
-- delivered.
function engine.get(id)
  local e = shard.entries[id]
  if not e then
    local raw = call('HGET', shard.state, id)
    e = raw and engine.decode(id, raw)
    if not e then
      e = engine.fresh(id, shard.now, engine.sizeOf(id))
      e.damaged, e.unknown = raw and true, not raw
    end
    e.kept = true
    shard.entries[id] = e
  end
  return e
end

-- located returns the entry of a message in pending.
function engine.located(locator)
  local id = sub(locator, 1, ID)
  if #locator > LOCATOR then
    local e = engine.get(id)
    e.place = parse('<d', locator, ID + 1) -- also if the entry is lost: the locator finds the message
    return e
  end
  local e = shard.entries[id]
  if not e or e.unknown then -- get was called for an entry that does not exist
    e = engine.fresh(id, parse('<d', locator, ID + 1), engine.sizeOf(id))
    shard.entries[id] = e
  end
  return e
end

function engine.locator(e) return e.id .. pack('<d', e.place) .. (e.kept and '+' or '') end

-- note records a deadline.
function engine.note(due)
  if due < shard.next then
    shard.next = due
  end
end

-- tail returns the next seq and place.
function engine.tail()
  shard.last = math.max(shard.last + 1, shard.now)
  shard.newest = shard.last -- given out in this call
  return shard.last
end

-- offer puts a ready message into its order.
function engine.offer(e)
  if shard.strict then
    local member = engine.member(e)
    call('ZREM', shard.out, member)
    call('ZADD', shard.groups, 0, member)
    engine.regroup(e.group)
  elseif e.priority > 0 then
    engine.rank(e)
  elseif e.place == shard.newest and e.ttl == 0 and e.unique == '' then
    call('RPUSH', shard.pending, engine.locator(e))
  else
    call('ZADD', shard.returned, e.place, e.id)
    shard.hasReturned = 1
  end
end

-- wait makes a message that is in no order ready, or delayed until it is due.
function engine.wait(e, due)
  local aside = shard.strict or due > shard.at or e.place ~= e.seq or e.place ~= shard.newest or e.ttl > 0 or e.priority > 0
    or e.unique ~= ''
  e.nonce, e.kept = 0, e.kept or aside
  if e.kept then
    shard.changed[e.id] = e
  end
  engine.followLife(e)
  if due > shard.at then
    if e.aged == 0 and not engine.hasReturned(e) then
      e.aged = -due
    end
    call('ZADD', shard.delayed, due, e.id)
    shard.newDelay = math.min(shard.newDelay or due, due)
    engine.note(due)
    if shard.strict then
      if engine.hasReturned(e) then -- a message delayed since it was sent blocks none
        engine.block(e)
      end
      engine.regroup(e.group)
    end
    return
  end
  engine.offer(e)
  if aside then
    engine.age(e)
  end
  if shard.readyAge > 0 then
    engine.note(engine.born(e) + shard.readyAge)
  end
end

-- unwait takes a waiting message out of its order.
function engine.unwait(e)
  engine.leaveLife(e)
  if shard.strict then
    call('ZREM', shard.groups, engine.member(e))
    call('ZREM', shard.out, engine.member(e))
    call('ZREM', shard.delayed, e.id)
    engine.regroup(e.group)
  elseif call('ZREM', shard.delayed, e.id) == 0 and not engine.unrank(e) and call('ZREM', shard.returned, e.id) == 0 then
    call('LREM', shard.pending, 1, engine.locator(e)) -- mostly the first
  end
end

-- first returns the ready message of priority 0 with the lowest place, or nil. Not for strict
-- groups.
function engine.first()
  local locator, back = call('LINDEX', shard.pending, 0), {}
  if shard.hasReturned ~= 0 then
    back = call('ZRANGE', shard.returned, 0, 0, 'WITHSCORES')
    if not back[1] then
      shard.hasReturned = 0
    end
  end
  local e = locator and engine.located(locator)
  local place = tonumber(back[2])
  if place and (not e or place < e.place or (place == e.place and back[1] < e.id)) then
    e = engine.get(back[1])
  end
  return e
end

-- unlease takes a message out of flight. The caller calls regroup.
function engine.unlease(e)
  call('ZREM', shard.invisible, e.id)
  if shard.strict then
    call('ZREM', shard.out, engine.member(e))
  end
end

-- remove drops a message that is in no order but perhaps ages.
function engine.remove(e)
  if e.aged > 0 then
    call('ZREM', shard.ages, e.id)
  end
  if e.held and call('HGET', shard.holders, e.unique) == e.id then
    call('HDEL', shard.holders, e.unique) -- see unique.lua
  end
  shard.bytes = shard.bytes - e.size
  if shard.count then
    shard.count = shard.count - 1
  end
  shard.entries[e.id], shard.changed[e.id] = nil, nil
  shard.removed[#shard.removed + 1] = e.id
  engine.flush()
end

-- waiting counts the messages that are ready or delayed.
function engine.waiting()
  return engine.ready() + call('ZCARD', shard.delayed)
end

-- counted returns how many messages are not dead. It counts once a call.
function engine.counted()
  shard.count = shard.count or engine.waiting() + engine.inFlight()
  return shard.count
end

-- room reports whether one more message with a body of this size fits.
function engine.room(size)
  return not (shard.maxMessages > 0 and engine.counted() >= shard.maxMessages)
    and not (shard.maxBytes > 0 and shard.bytes + size > shard.maxBytes)
end
