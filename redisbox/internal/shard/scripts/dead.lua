-- Dead letters: how a message becomes one, and how dead letters are removed.

local DEAD_RETRY = 60000000 -- see driver.DeadRetry

-- deadFull reports whether no message may become a dead letter. Retention by count,
-- where it is tighter than the limit, makes room without being asked.
function engine.deadFull()
  if shard.maxDead == 0 or (shard.deadCount > 0 and shard.deadCount < shard.maxDead) then
    return false
  end
  return call('ZCARD', shard.dead) >= shard.maxDead
end

-- discard removes a dead letter permanently, and returns 1 if it was there.
function engine.discard(id)
  if call('ZREM', shard.dead, id) == 0 then
    return 0
  end
  call('HDEL', shard.deadLetters, id)
  call('ZREM', shard.outbox, id)
  return 1
end

-- madeRoom expires messages that waited for room among the dead letters.
function engine.madeRoom()
  if shard.readyAge > 0 or shard.readyCount > 0 or engine.lives() > 0 then
    shard.next = 0
    engine.advance()
  end
end

-- oldestDead returns the id and the death of the oldest dead letter that stays
-- here. Dead letters that are being forwarded do not count until they have left or
-- are kept after all; behind very many of them it does not look.
function engine.oldestDead()
  local page = call('ZRANGE', shard.dead, 0, shard.forwards and 99 or 0, 'WITHSCORES')
  for i = 1, #page, 2 do
    if not shard.forwards or not call('ZSCORE', shard.outbox, page[i]) then
      return page[i], tonumber(page[i + 1])
    end
  end
  return nil, INFINITE
end

-- deadLetter makes a message a dead letter: its entry and its record move to
-- deadLetters. The message must be in no order but ages.
function engine.deadLetter(e, reason)
  e.reason, e.deadAt, e.nonce, e.hold = reason, shard.wall - (shard.now - shard.at), 0, 0
  engine.ended('d', e.id, reason, e.deliveries, e.failure)
  shard.death = math.max(shard.death + 1, shard.at)
  call('ZADD', shard.dead, shard.death, e.id)
  local entry = engine.encode(e)
  call('HSET', shard.deadLetters, e.id, pack('<I4', #entry) .. entry .. (call('HGET', shard.data, e.id) or ''))
  if shard.forwards then
    call('ZADD', shard.outbox, shard.death, e.id)
  end
  if shard.deadAge > 0 then
    engine.note(shard.death + shard.deadAge)
  end
  engine.remove(e)
  engine.expireDeadByCount()
end

-- deadLetterOrWait dead-letters a message that cannot be delivered any more, or
-- delays it while the dead letters are full.
function engine.deadLetterOrWait(e, reason, delay)
  if engine.deadFull() then
    engine.wait(e, shard.at + math.max(delay, DEAD_RETRY))
    return
  end
  engine.deadLetter(e, reason)
  if shard.strict then
    engine.regroup(e.group)
  end
end

function engine.exhausted(e) return shard.maxDeliveries > 0 and e.deliveries >= shard.maxDeliveries end
