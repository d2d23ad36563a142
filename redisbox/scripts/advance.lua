-- What fell due since the last call happens now, each at its own time and in the
-- order of those times. A call that cannot do it all within its budget says
-- "again" and does nothing else; so order never depends on who looked when.

-- timers returns leases and delays that are over, in the order of due and seq, and up
-- to when that is all. Delays that begin while they are handled bring that forward.
local function timers()
  local due, horizon = {}, INFINITE
  shard.newDelay = INFINITE
  for _, name in ipairs(call('ZRANGEBYSCORE', shard.invisible, '-inf', shard.now, 'LIMIT', 0, shard.budget)) do
    if #name < ID then
      shard.budget = shard.budget - engine.split(name)
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
    return -- retention was faster
  end
  local e = engine.get(timer.id)
  if timer.key == shard.invisible and e.reason == 'moving' then
    -- Whoever was moving it has stopped. Where it is now only the other queue knows,
    -- so it stays out until somebody has asked there.
    call('ZADD', shard.arrivals, 'inf', '>' .. e.id)
    call('ZADD', shard.invisible, shard.now + e.hold, e.id)
    shard.stalled = true
  elseif timer.key == shard.invisible then
    if shard.strict then
      call('ZREM', shard.out, engine.member(e))
    end
    e.nonce, e.hold = 0, -e.nonce -- whose delivery is over, see settle.lua
    engine.comeBack(e, 0)
    engine.expireByCount()
  else
    engine.offer(e)
    engine.age(e)
    if engine.tooOld(e) then -- its age has run on, as that of one in flight does
      engine.expireOldest(e.id)
    end
    engine.expireByCount()
  end
end

-- readyRetention and deadRetention return who is next to expire, and when.
local function readyRetention()
  if shard.readyAge == 0 or not engine.mayExpire() then
    return nil, INFINITE
  end
  local oldest, born = engine.oldestReady()
  return oldest, born + shard.readyAge
end

function engine.deadRetention()
  if shard.deadAge == 0 then
    return nil, INFINITE
  end
  local oldest, death = engine.oldestDead()
  return oldest, death + shard.deadAge
end

-- step lets the earliest event happen. Of several at one time timers come first,
-- so that a message whose lease and retention end together is seen coming back
-- before it is judged by its age. It returns when that was, or is to be: nothing happens
-- beyond now or horizon.
local function step(timer, horizon)
  local due = timer and timer.due or INFINITE
  local ready, readyDue = readyRetention()
  local letter, letterDue = engine.deadRetention()
  local first = math.min(due, readyDue, letterDue)
  if first > shard.now or first > horizon then
    return first, false
  end
  shard.budget = shard.budget - 1
  -- What was held up, because retention waits for room among the dead, happens
  -- when it can and not when it should have.
  shard.at = math.max(shard.at, first)
  if due == first then
    fire(timer)
    return first, true
  elseif readyDue == first then
    engine.expireOldest(ready)
  else
    engine.expireDead(letter)
    engine.expireByCount()
  end
  return first, false
end

-- forgetArrivals forgets the oldest messages that have arrived from other queues, of
-- those that were remembered long enough. A million may be at once; so not all of them.
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

-- advance reports whether everything has happened that fell due up to now.
function engine.advance()
  if shard.now < shard.next then
    return true
  elseif shard.budget <= 0 then
    shard.next = 0
    return false
  end
  shard.next, shard.at = INFINITE, math.min(shard.clock, shard.now)
  engine.expireDeadByCount()
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
  shard.at, shard.clock = shard.now, shard.now
  engine.forgetArrivals(1000)
  engine.expireByCount()
  engine.flush() -- what follows may read entries where they are kept
  if shard.budget <= 0 then
    shard.next = 0
    return false
  end
  local _, readyDue = readyRetention()
  local _, letterDue = engine.deadRetention()
  shard.next = math.min(firstDue(shard.invisible), firstDue(shard.delayed), readyDue, letterDue)
  return true
end

-- again asks for the call to be repeated: it has done only what fell due.
function engine.again()
  shard.session = '' -- it is still to come
  return { 'again', sub(engine.finish()[2], HEAD + 1) } -- what ended is told now
end
