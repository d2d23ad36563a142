-- Where messages wait. Without strict groups pending is the list of the ready
-- ones in the order of their places, and returned has those that came back to an
-- earlier place than the tail.
--
-- With strict groups the ready ones are in groups, ordered by group and place. out
-- has, in the same order, those that block later ones of their group: what is in
-- flight, and what was delivered and is delayed. A group may go if its first ready
-- message is before all that block it. eligible has the groups that may go by the
-- place of that message, and turns has them by their turn: that place, or the time
-- when the group was last received from, if that is later. served has that time for
-- groups with anything ready or out.
--
-- In pending messages have tickets: id, place, and a plus if there is an entry. A
-- message that has only been sent has none, and so is found nowhere but there.
--
-- The oldest ready message is the head of pending or of ages, which has, by when they
-- could first be delivered, those that are not where they arrived: those that came
-- back, were delayed or went to the tail, and all of a queue with strict groups.
-- Messages that are not ready any more may stay in ages until they come to its head.
--
-- aged of an entry is when it could first be delivered, and negative while it is not in
-- ages. 0 and, for messages in ages, 1 mean when it was sent.

local FIELDS = 1024 -- at a time: unpack fails beyond 8000, and splitting hauls changes 16 entries a receipt

-- flush writes entries that have changed and takes away messages that are gone.
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

-- get returns the entry of a message that has one. One that cannot be read is made
-- up from what there is, so that the message goes on and is found damaged when it
-- is delivered.
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

-- redeem returns the entry of a message with a ticket.
function engine.redeem(ticket)
  local id = sub(ticket, 1, ID)
  if #ticket > TICKET then
    local e = engine.get(id)
    e.place = parse('<d', ticket, ID + 1) -- also if the entry is lost: it is found by its ticket
    return e
  end
  local e = shard.entries[id]
  if not e or e.unknown then -- somebody has asked for an entry that it does not have
    e = engine.fresh(id, parse('<d', ticket, ID + 1), engine.sizeOf(id))
    shard.entries[id] = e
  end
  return e
end

function engine.ticket(e) return e.id .. pack('<d', e.place) .. (e.kept and '+' or '') end

-- note remembers that something happens at due.
function engine.note(due)
  if due < shard.next then
    shard.next = due
  end
end

-- tail gives out the next seq and place.
function engine.tail()
  shard.last = math.max(shard.last + 1, shard.now)
  shard.newest = shard.last -- given out in this call
  return shard.last
end

function engine.member(e) return e.group .. format('%016.0f', e.place) .. e.id end

-- head returns the id and the place of the first waiting message of a group.
function engine.head(group)
  local first = call('ZRANGEBYLEX', shard.groups, '[' .. group, '[' .. group .. ':', 'LIMIT', 0, 1)[1]
  if first then
    return sub(first, #group + 17), tonumber(sub(first, #group + 1, #group + 16))
  end
end

-- blocker returns the place of the first message that blocks a group, or nil. One
-- that neither is in flight nor waits does not block: its entry was damaged when it
-- left, so that it was not found here.
function engine.blocker(group)
  while true do
    local first = call('ZRANGEBYLEX', shard.out, '[' .. group, '[' .. group .. ':', 'LIMIT', 0, 1)[1]
    if not first then
      return nil
    end
    local id = sub(first, #group + 17)
    if call('ZSCORE', shard.invisible, id) or call('ZSCORE', shard.delayed, id) then
      return tonumber(sub(first, #group + 1, #group + 16))
    end
    call('ZREM', shard.out, first)
  end
end

-- regroup lets a group go if its first ready message is before all that block it.
-- A batch that has taken from the group goes on with it.
function engine.regroup(group)
  local id, place = engine.head(group)
  local bound = shard.taken[group] or engine.blocker(group)
  if id and (not bound or place < bound) then
    call('ZADD', shard.eligible, place, group)
    if not (shard.taken[group] and call('ZSCORE', shard.turns, group)) then
      local served = tonumber(call('HGET', shard.served, group) or 0)
      call('ZADD', shard.turns, math.max(place, served), group)
    end
    return
  end
  call('ZREM', shard.eligible, group)
  call('ZREM', shard.turns, group)
  if not id and not bound then
    call('HDEL', shard.served, group)
  end
end

-- block says that a message which waits blocks its group, also for the batch that
-- takes from it.
function engine.block(e)
  call('ZADD', shard.out, 0, engine.member(e))
  if shard.taken[e.group] then
    shard.taken[e.group] = math.min(shard.taken[e.group], e.place)
  end
end

-- hold says that a batch has taken a message of a group.
function engine.hold(e)
  if not shard.taken[e.group] then
    shard.taken[e.group] = engine.blocker(e.group) or INFINITE
    shard.takenOrder[#shard.takenOrder + 1] = e.group
  end
  call('ZADD', shard.out, 0, engine.member(e))
  engine.regroup(e.group)
end

-- endBatch puts the groups that a batch has taken from behind the others.
function engine.endBatch()
  local groups = shard.takenOrder
  shard.taken, shard.takenOrder = {}, {}
  for _, group in ipairs(groups) do
    call('HSET', shard.served, group, engine.tail())
    engine.regroup(group)
  end
end

-- offer puts a ready message where it is found.
function engine.offer(e)
  if shard.strict then
    local member = engine.member(e)
    call('ZREM', shard.out, member)
    call('ZADD', shard.groups, 0, member)
    engine.regroup(e.group)
  elseif e.place == shard.newest then
    call('RPUSH', shard.pending, engine.ticket(e))
  else
    call('ZADD', shard.returned, e.place, e.id)
    shard.hasReturned = 1
  end
end

-- wait makes a message that is in no order ready, or delayed until it is due.
function engine.wait(e, due)
  local aside = shard.strict or due > shard.at or e.place ~= e.seq or e.place ~= shard.newest
  e.nonce, e.kept = 0, e.kept or aside
  if e.kept then
    shard.changed[e.id] = e
  end
  if due > shard.at then
    if e.deliveries == 0 and e.aged == 0 then
      e.aged = -due
    end
    call('ZADD', shard.delayed, due, e.id)
    shard.newDelay = math.min(shard.newDelay or due, due)
    engine.note(due)
    if shard.strict then
      if e.deliveries > 0 then -- what is delayed since it was sent blocks nothing
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
  if shard.strict then
    call('ZREM', shard.groups, engine.member(e))
    call('ZREM', shard.out, engine.member(e))
    call('ZREM', shard.delayed, e.id)
    engine.regroup(e.group)
  elseif call('ZREM', shard.delayed, e.id) == 0 and call('ZREM', shard.returned, e.id) == 0 then
    call('LREM', shard.pending, 1, engine.ticket(e)) -- mostly the first
  end
end

-- first returns the ready message with the lowest place, and nil if there is none;
-- without strict groups.
function engine.first()
  local ticket, back = call('LINDEX', shard.pending, 0), {}
  if shard.hasReturned ~= 0 then
    back = call('ZRANGE', shard.returned, 0, 0, 'WITHSCORES')
    if not back[1] then
      shard.hasReturned = 0
    end
  end
  local e = ticket and engine.redeem(ticket)
  local place = tonumber(back[2])
  if place and (not e or place < e.place or (place == e.place and back[1] < e.id)) then
    e = engine.get(back[1])
  end
  return e
end

-- unlease takes a message out of flight; its group is for the caller to settle.
function engine.unlease(e)
  call('ZREM', shard.invisible, e.id)
  if shard.strict then
    call('ZREM', shard.out, engine.member(e))
  end
end

-- remove drops a message that is in no order but perhaps the one by age.
function engine.remove(e)
  if e.aged > 0 then
    call('ZREM', shard.ages, e.id)
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

-- counted is how many messages are not dead, counted when it is first asked for.
function engine.counted()
  shard.count = shard.count or engine.waiting() + engine.inFlight()
  return shard.count
end

-- room reports whether one more message with a body of this size fits.
function engine.room(size)
  return not (shard.maxMessages > 0 and engine.counted() >= shard.maxMessages)
    and not (shard.maxBytes > 0 and shard.bytes + size > shard.maxBytes)
end
