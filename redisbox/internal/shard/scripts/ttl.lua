-- Times to live. ends has the waiting messages with a time to live, ready and delayed, by when
-- that is over on the server's clock, and then by seq. Versions that know no times to live leave members behind
-- there. Such messages wait in returned, not in pending, so that one can be taken out of the
-- middle in few steps.

local ROOM_WAIT = 31622400000000 -- how long a message whose time is over waits for room among the dead letters

-- outlived reports whether the time to live of a message is over.
function engine.outlived(e) return e.ttl > 0 and e.ends + shard.offset <= shard.at end

-- lives counts the members of ends. It counts once a call.
function engine.lives()
  shard.lives = shard.lives or call('ZCARD', shard.ends)
  return shard.lives
end

-- startLife sets when the life of a message that waits for delay first is over.
function engine.startLife(e, delay) e.ends = e.ttl > 0 and shard.wall + delay + e.ttl or 0 end

-- living returns the member of ends that stands for a message.
function engine.living(e) return format('%016.0f', e.seq) .. e.id end

-- followLife notes when the life of a message that begins to wait is over, and leaveLife
-- forgets it when the message waits no longer.
function engine.followLife(e)
  if e.ttl > 0 then
    shard.lives = engine.lives() + call('ZADD', shard.ends, e.ends, engine.living(e))
    engine.note(e.ends + shard.offset)
  end
end

function engine.leaveLife(e)
  if e.ttl > 0 then
    shard.lives = engine.lives() - call('ZREM', shard.ends, engine.living(e))
  end
end

-- nextEnd returns the member of the waiting message whose life is over next, and when.
function engine.nextEnd()
  if engine.lives() == 0 or not engine.mayExpire() then
    return nil, INFINITE
  end
  local first = call('ZRANGE', shard.ends, 0, 0, 'WITHSCORES')
  return first[1], tonumber(first[2]) + shard.offset
end

-- endLife expires a message whose life is over.
function engine.endLife(living)
  local e = engine.get(sub(living, 17))
  if e.ttl > 0 and e.nonce == 0 and engine.living(e) == living then
    engine.expireOldest(e.id)
  else
    shard.lives = engine.lives() - call('ZREM', shard.ends, living)
  end
end

-- expireOrWait expires a message whose life is over and which is in no order. While the dead
-- letters are full it is delayed: endLife expires it when there is room.
function engine.expireOrWait(e)
  if not engine.mayExpire() then
    engine.wait(e, shard.at + ROOM_WAIT)
    return
  end
  engine.expire(e)
  if shard.strict then
    engine.regroup(e.group)
  end
end
