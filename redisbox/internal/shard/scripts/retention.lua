-- Retention: which messages expire, by age and by count, and which dead letters are
-- removed. Settings are in shard: readyAge, readyCount, deadAge, deadCount, and drops,
-- with which expired messages are removed instead of dead-lettered.

-- mayExpire reports whether expired messages have somewhere to go.
function engine.mayExpire() return shard.drops or not engine.deadFull() end

-- expire ends a message that is in no order but perhaps ages.
function engine.expire(e)
  if shard.drops then
    engine.ended('x', e.id, 'expired', e.deliveries, e.failure)
    engine.remove(e)
  else
    engine.deadLetter(e, 'expired')
  end
end

-- requeue makes a message whose delivery is over wait again, unless it was delivered
-- too often, its life is over, or it is too old.
function engine.requeue(e, delay)
  if engine.exhausted(e) then
    engine.deadLetterOrWait(e, 'max_attempts', delay)
  elseif engine.outlived(e) then
    engine.expireOrWait(e)
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

-- oldestReady returns the id of the oldest ready message, and when it could first be
-- delivered. A message at the head of ages that is not ready is taken out; it is put
-- back when it becomes ready. So is one whose entry is lost, if it may be in levels, where only
-- its entry would find it: it is found damaged when it is delivered.
function engine.oldestReady()
  local ready
  if not shard.strict then
    local back = shard.hasReturned ~= 0 and call('ZRANGE', shard.returned, 0, 0)[1]
    if back then
      engine.age(engine.get(back)) -- it may have come back when such messages were not in ages
    end
    local locator = call('LINDEX', shard.pending, 0)
    ready = locator and engine.located(locator)
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
    local lost = shard.prioritized and (e.damaged or e.unknown)
    if not lost and e.nonce == 0 and not call('ZSCORE', shard.delayed, e.id) then
      return e.id, born
    end
    call('ZREM', shard.ages, e.id)
    if not lost then
      e.aged, shard.changed[e.id] = -born, e
    end
  end
end

-- tooOld reports whether a message is past its retention and may expire.
function engine.tooOld(e)
  return shard.readyAge > 0 and engine.born(e) + shard.readyAge <= shard.at and engine.mayExpire()
end

-- readyRetention returns the next ready message to expire by age, and when.
function engine.readyRetention()
  if shard.readyAge == 0 or not engine.mayExpire() then
    return nil, INFINITE
  end
  local oldest, born = engine.oldestReady()
  return oldest, born + shard.readyAge
end

-- deadRetention returns the next dead letter to be removed by age, and when.
function engine.deadRetention()
  if shard.deadAge == 0 then
    return nil, INFINITE
  end
  local oldest, death = engine.oldestDead()
  return oldest, death + shard.deadAge
end

-- expireOldest expires a ready message.
function engine.expireOldest(id)
  local e = engine.get(id)
  engine.unwait(e)
  engine.expire(e)
end

-- expireByCount expires the oldest ready messages while there are more than retention
-- allows.
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

-- expireDead removes a dead letter that is past its retention.
function engine.expireDead(id)
  local e
  if #shard.endings < MAX_ENDINGS then
    local packed = call('HGET', shard.deadLetters, id) or ''
    e = #packed >= 4 and engine.decode(id, sub(packed, 5, 4 + parse('<I4', packed)))
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
