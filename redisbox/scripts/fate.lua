-- How messages die, and who has to.

local DEAD_RETRY = 60000000 -- see driver.DeadRetry

-- deadFull reports whether no message may die. Retention by count, where it is
-- tighter, makes room by itself.
function engine.deadFull()
  if shard.maxDead == 0 or (shard.deadCount > 0 and shard.deadCount < shard.maxDead) then
    return false
  end
  return call('ZCARD', shard.dead) >= shard.maxDead
end

-- discard removes a dead letter for ever.
function engine.discard(id)
  if call('ZREM', shard.dead, id) == 0 then
    return 0
  end
  call('HDEL', shard.graves, id)
  call('ZREM', shard.outbox, id)
  return 1
end

-- madeRoom lets happen what has waited for room among the dead letters.
function engine.madeRoom()
  if shard.readyAge > 0 or shard.readyCount > 0 then
    shard.next = 0
    engine.advance()
  end
end

-- oldestDead returns the id and the death of the oldest dead letter that stays
-- here. Those that are on their way to another queue are nobody's business until
-- they have gone or stay after all; behind very many of them nobody looks.
function engine.oldestDead()
  local page = call('ZRANGE', shard.dead, 0, shard.forwards and 99 or 0, 'WITHSCORES')
  for i = 1, #page, 2 do
    if not shard.forwards or not call('ZSCORE', shard.outbox, page[i]) then
      return page[i], tonumber(page[i + 1])
    end
  end
  return nil, INFINITE
end

-- expireDead removes a dead letter that is past its retention.
function engine.expireDead(id)
  local e
  if #shard.endings < ENDINGS_MOST then
    local grave = call('HGET', shard.graves, id) or ''
    e = #grave >= 4 and engine.decode(id, sub(grave, 5, 4 + parse('<I4', grave)))
  end
  e = e or { reason = '', deliveries = 0, failure = '' }
  engine.ended('r', id, e.reason, e.deliveries, e.failure)
  engine.discard(id)
end

-- expireDeadByCount removes the oldest dead letters while there are more than
-- retention allows.
function engine.expireDeadByCount()
  while shard.deadCount > 0 do
    local leaving = shard.forwards and call('ZCARD', shard.outbox) or 0
    local oldest = call('ZCARD', shard.dead) - leaving > shard.deadCount and engine.oldestDead()
    if not oldest then
      return
    elseif shard.budget <= 0 then
      shard.next = 0
      return
    end
    shard.budget = shard.budget - 1
    engine.expireDead(oldest)
  end
end

-- die makes a message that is in no order, but perhaps the one by age, a dead
-- letter: its entry and what was sent move to the graves.
function engine.die(e, reason)
  e.reason, e.deadAt, e.nonce, e.hold = reason, shard.wall - (shard.now - shard.at), 0, 0
  engine.ended('d', e.id, reason, e.deliveries, e.failure)
  shard.death = math.max(shard.death + 1, shard.at)
  call('ZADD', shard.dead, shard.death, e.id)
  local entry = engine.encode(e)
  call('HSET', shard.graves, e.id, pack('<I4', #entry) .. entry .. (call('HGET', shard.data, e.id) or ''))
  if shard.forwards then
    call('ZADD', shard.outbox, shard.death, e.id)
  end
  if shard.deadAge > 0 then
    engine.note(shard.death + shard.deadAge)
  end
  engine.remove(e)
  engine.expireDeadByCount()
end

-- dieOrWait lets a message that cannot be delivered any more die, or wait while
-- there is no room among the dead letters.
function engine.dieOrWait(e, reason, delay)
  if engine.deadFull() then
    engine.wait(e, shard.at + math.max(delay, DEAD_RETRY))
    return
  end
  engine.die(e, reason)
  if shard.strict then
    engine.regroup(e.group)
  end
end

function engine.exhausted(e) return shard.maxDeliveries > 0 and e.deliveries >= shard.maxDeliveries end

-- mayExpire reports whether messages that are past their time can go.
function engine.mayExpire() return shard.drops or not engine.deadFull() end

-- expire ends a message that is in no order, but perhaps the one by age.
function engine.expire(e)
  if shard.drops then
    engine.ended('x', e.id, 'expired', e.deliveries, e.failure)
    engine.remove(e)
  else
    engine.die(e, 'expired')
  end
end

-- comeBack decides what becomes of a message whose delivery is over.
function engine.comeBack(e, delay)
  if engine.exhausted(e) then
    engine.dieOrWait(e, 'max_attempts', delay)
  elseif engine.tooOld(e) then
    engine.expire(e)
    if shard.strict then
      engine.regroup(e.group)
    end
  else
    engine.wait(e, shard.at + delay)
  end
end

-- born returns when a message could first be delivered.
function engine.born(e)
  local born = math.abs(e.aged)
  return born > 1 and born or e.seq
end

-- age puts a message with an entry into ages.
function engine.age(e)
  if e.aged <= 0 then
    e.aged = engine.born(e)
    shard.changed[e.id] = e
    call('ZADD', shard.ages, e.aged, e.id)
  end
end

-- oldestReady returns the id of the oldest message that is ready, and when it could
-- first be delivered. One at the head of ages that is not ready is taken out; it is put
-- back when it is.
function engine.oldestReady()
  local ready
  if not shard.strict then
    local back = shard.hasReturned ~= 0 and call('ZRANGE', shard.returned, 0, 0)[1]
    if back then
      engine.age(engine.get(back)) -- it may have come back when such messages were not in ages
    end
    local ticket = call('LINDEX', shard.pending, 0)
    ready = ticket and engine.redeem(ticket)
  end
  while true do
    local aged = call('ZRANGE', shard.ages, 0, 0, 'WITHSCORES')
    local born = tonumber(aged[2])
    if ready and (not born or ready.place < born or (ready.place == born and ready.id < aged[1])) then
      return ready.id, ready.place
    end
    if not born then
      return nil, INFINITE
    end
    local e = engine.get(aged[1])
    if e.nonce == 0 and not call('ZSCORE', shard.delayed, e.id) then
      return e.id, born
    end
    call('ZREM', shard.ages, e.id)
    e.aged, shard.changed[e.id] = -born, e
  end
end

-- tooOld reports whether a message is past its time and can go.
function engine.tooOld(e)
  return shard.readyAge > 0 and engine.born(e) + shard.readyAge <= shard.at and engine.mayExpire()
end

-- expireOldest ends a ready message.
function engine.expireOldest(id)
  local e = engine.get(id)
  engine.unwait(e)
  engine.expire(e)
end

-- expireByCount lets the oldest ready messages go while there are more than
-- retention allows.
function engine.expireByCount()
  while shard.readyCount > 0 and engine.ready() > shard.readyCount and engine.mayExpire() do
    local oldest = engine.oldestReady()
    if not oldest then
      return
    elseif shard.budget <= 0 then
      shard.next = 0
      return
    end
    shard.budget = shard.budget - 1
    engine.expireOldest(oldest)
  end
end
