-- Timers and retention. Each due event happens at its own time, in the order of those
-- times. A call that cannot do all of them within its budget answers "again" and does
-- nothing else, so the order never depends on when calls come in.

-- timers returns leases and delays that have ended, in the order of due and seq, and
-- the time up to which they are complete. Delays that begin meanwhile bring that
-- forward.
local function timers()
  local due, horizon = {}, INFINITE
  shard.newDelay = INFINITE
  for _, name in ipairs(call('ZRANGEBYSCORE', shard.invisible, '-inf', shard.now, 'LIMIT', 0, shard.budget)) do
    if #name < ID then
      shard.budget = shard.budget - engine.splitBundle(name)
      if shard.budget <= 0 then
        return due, horizon
      end
    end
  end
  for _, key in ipairs({ shard.invisible, shard.delayed }) do
    local page = call('ZRANGEBYSCORE', key, '-inf', shard.now, 'WITHSCORES', 'LIMIT', 0, shard.budget)
    for i = 1, #page, 2 do
      due[#due + 1] = { id = page[i], due = tonumber(page[i + 1]), key = key, seq = engine.get(page[i]).seq }
    end
    if #page >= 2 * shard.budget then
      horizon = math.min(horizon, tonumber(page[#page])) -- there may be more
    end
  end
  table.sort(due, function(a, b)
    if a.due ~= b.due then
      return a.due < b.due
    elseif a.seq ~= b.seq then
      return a.seq < b.seq
    end
    return a.id < b.id
  end)
  return due, horizon
end

-- fire ends one lease or delay.
local function fire(timer)
  if call('ZREM', timer.key, timer.id) == 0 then
    return -- it has expired
  end
  local e = engine.get(timer.id)
  if timer.key == shard.invisible and e.reason == 'moving' then
    -- The process that was moving it has stopped. Only the other queue knows whether it
    -- arrived, so it stays in flight until another process has asked there.
    call('ZADD', shard.arrivals, 'inf', '>' .. e.id)
    call('ZADD', shard.invisible, shard.now + e.hold, e.id)
    shard.stalled = true
  elseif timer.key == shard.invisible then
    if shard.strict then
      call('ZREM', shard.out, engine.member(e))
    end
    e.nonce, e.hold, e.releases = 0, -e.nonce, 0 -- the delivery that has ended, see settle.lua
    engine.requeue(e, 0)
    engine.expireByCount()
  else
    engine.offer(e)
    engine.age(e)
    if engine.tooOld(e) then -- it has aged while it was delayed, as a message in flight does
      engine.expireOldest(e.id)
    end
    engine.expireByCount()
  end
end

-- moveTo moves the clock of events forward.
local function moveTo(time)
  if time > shard.at then
    shard.at = time
    engine.forgetIdle()
  end
end

-- step handles the earliest event that is not after now and horizon. Timers come before
-- ends of lives and retention at the same time, so that a message whose lease and retention end together
-- comes back before its age is checked. It returns the time of the event, and whether
-- it was the timer.
local function step(timer, horizon)
  local due = timer and timer.due or INFINITE
  local ended, endDue = engine.nextEnd()
  local ready, readyDue = engine.readyRetention()
  local dead, deadDue = engine.deadRetention()
  local first = math.min(due, endDue, readyDue, deadDue)
  if first > shard.now or first > horizon then
    return first, false
  end
  shard.budget = shard.budget - 1
  -- An event that was held up, because the dead letters were full, happens when it can
  -- and not when it should have.
  moveTo(first)
  if due == first then
    fire(timer)
    return first, true
  elseif endDue == first then
    engine.endLife(ended)
  elseif readyDue == first then
    engine.expireOldest(ready)
  else
    engine.expireDead(dead)
    engine.expireByCount()
  end
  return first, false
end

-- forgetArrivals forgets the oldest arrivals from other queues that were remembered long
-- enough, at most that many: a million may be due at once.
local ARRIVAL = 604800000000 -- how long an arrival is remembered at least

function engine.forgetArrivals(most)
  local old = call('ZRANGEBYSCORE', shard.arrivals, '-inf', shard.now - math.max(ARRIVAL, shard.window), 'LIMIT', 0, most)
  if #old > 0 then
    call('ZREM', shard.arrivals, unpack(old))
  end
end

local function firstDue(key)
  return tonumber(call('ZRANGE', key, 0, 0, 'WITHSCORES')[2]) or INFINITE
end

-- advance handles all events up to now, and reports whether the budget sufficed.
function engine.advance()
  if shard.now < shard.next then
    return true
  elseif shard.budget <= 0 then
    shard.next = 0
    return false
  end
  shard.next, shard.at = INFINITE, math.min(shard.clock, shard.now)
  repeat
    local due, horizon = timers()
    local i = 1
    while shard.budget > 0 do
      if i > #due and i > 1 then
        break -- there may be more
      end
      local upTo = math.min(horizon, shard.newDelay)
      local first, fired = step(due[i], upTo)
      if fired then
        i = i + 1
      elseif first > shard.now or first > upTo then
        break
      end
    end
  until #due == 0 or shard.budget <= 0
  moveTo(shard.now)
  shard.clock = shard.now
  engine.forgetArrivals(1000)
  engine.expireDeadByCount()
  engine.expireByCount()
  engine.flush() -- later code may read entries from state
  if shard.budget <= 0 then
    shard.next = 0
    return false
  end
  local _, endDue = engine.nextEnd()
  local _, readyDue = engine.readyRetention()
  local _, deadDue = engine.deadRetention()
  shard.next = math.min(firstDue(shard.invisible), firstDue(shard.delayed), endDue, readyDue, deadDue)
  return true
end

-- again asks for the call to be repeated: it has only handled due events.
function engine.again()
  shard.session = '' -- the call of the session is still to come
  return { 'again', sub(engine.finish()[2], HEAD + 1) } -- endings are reported now
end
