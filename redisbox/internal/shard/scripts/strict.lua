-- Strict groups. Ready messages are in groups, ordered by group and place. out has, in
-- the same order, the messages that block later ones of their group: those in flight,
-- and those that were delivered and are delayed. A group is eligible if its first
-- ready message is before all that block it. eligible has these groups by the place of
-- that message, and turns has them by their turn: that place, or the time when the
-- group was last received from, if that is later. served has that time for groups with
-- messages in groups or out, and for those in shard.idle: groups without messages that
-- are forgotten when the clock moves.

-- member returns the member of groups and out that stands for a message.
function engine.member(e) return e.group .. format('%016.0f', e.place) .. e.id end

-- head returns the id and the place of the first ready message of a group.
function engine.head(group)
  local first = call('ZRANGEBYLEX', shard.groups, '[' .. group, '[' .. group .. ':', 'LIMIT', 0, 1)[1]
  if first then
    return sub(first, #group + 17), tonumber(sub(first, #group + 1, #group + 16))
  end
end

-- blocker returns the place of the first message that blocks a group, or nil. A
-- member that neither is in flight nor waits does not block: its entry was damaged
-- when it left, so the member was not found.
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

-- regroup makes a group eligible if its first ready message is before all that block
-- it. The batch being received may continue with a group it has taken from.
function engine.regroup(group)
  local id, place = engine.head(group)
  local bound = shard.taken[group] or engine.blocker(group)
  shard.idle[group] = nil
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
    shard.idle[group] = true
  end
end

-- forgetIdle forgets when the groups that have stayed without messages were last
-- received from.
function engine.forgetIdle()
  for group in pairs(shard.idle) do
    call('HDEL', shard.served, group)
  end
  shard.idle = {}
end

-- block records that a delayed message blocks its group, also for the batch that is
-- being received.
function engine.block(e)
  call('ZADD', shard.out, 0, engine.member(e))
  if shard.taken[e.group] then
    shard.taken[e.group] = math.min(shard.taken[e.group], e.place)
  end
end

-- hold records that the batch being received has taken a message of a group.
function engine.hold(e)
  if not shard.taken[e.group] then
    shard.taken[e.group] = engine.blocker(e.group) or INFINITE
    shard.takenOrder[#shard.takenOrder + 1] = e.group
  end
  call('ZADD', shard.out, 0, engine.member(e))
  engine.regroup(e.group)
end

-- endBatch moves the groups that the batch has taken from behind the others.
function engine.endBatch()
  local groups = shard.takenOrder
  shard.taken, shard.takenOrder = {}, {}
  for _, group in ipairs(groups) do
    call('HSET', shard.served, group, engine.tail())
    engine.regroup(group)
  end
end
