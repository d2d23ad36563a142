#!lua flags=allow-oom
-- Changes one waiting message: removes it, makes it ready, or changes its due time or priority.
--
-- KEYS: the shard
-- ARGV: queue, floor, fence, session, turn, id, what, value, after
-- Result: head; code; place
-- Uses: head session time shard entry bundle order priority strict retention ttl dead advance advance_first
--
-- what: remove; wait until value, a wall time, 0 is now; or prioritize, value is the priority. The codes: r ready and d
-- delayed, the state that the message was in; f in flight and g dead, and nothing was
-- done; n not here. A ready message that has no entry is searched in pending, a part in
-- each call: m says that the messages before place were searched, and after is the place
-- of the last answer.

local LOOK = 2000
local id, what, value, after = ARGV[6], ARGV[7], tonumber(ARGV[8]), tonumber(ARGV[9])
local due = math.max(value - shard.wall, 0)

-- change changes a message that waits, and returns the answer.
local function change(e, code)
  if what == 'remove' then
    engine.unwait(e)
    engine.remove(e)
  elseif what == 'prioritize' and code == 'd' then
    e.priority, shard.changed[e.id] = value, e
  elseif what == 'prioritize' then
    engine.unwait(e)
    e.priority = value
    engine.wait(e, shard.at)
  elseif code == 'd' or due > 0 then
    engine.unwait(e)
    if e.aged > 0 then
      call('ZREM', shard.ages, e.id)
    end
    e.aged, e.since = -(shard.at + due), 0
    engine.startLife(e, due)
    engine.wait(e, shard.at + due)
    engine.expireByCount()
  end
  return engine.finish(nil, code, 0)
end

if call('HEXISTS', shard.data, id) == 0 then
  return engine.finish(nil, call('ZSCORE', shard.dead, id) and 'g' or 'n', 0)
elseif call('ZSCORE', shard.delayed, id) then
  return change(engine.get(id), 'd')
elseif call('ZSCORE', shard.invisible, id) then
  return engine.finish(nil, 'f', 0)
elseif shard.strict then
  local e = engine.get(id)
  if call('ZSCORE', shard.groups, engine.member(e)) then
    return change(e, 'r')
  end
  return engine.finish(nil, 'n', 0)
elseif call('ZSCORE', shard.returned, id) or (shard.prioritized and call('ZSCORE', shard.levels, engine.ranked(engine.get(id)))) then
  return change(engine.get(id), 'r')
end

-- The messages of pending are in the order of their places; those of one send have the same.
local from, to = 0, call('LLEN', shard.pending)
while from < to do
  local middle = math.floor((from + to) / 2)
  if parse('<d', call('LINDEX', shard.pending, middle), ID + 1) < after then
    from = middle + 1
  else
    to = middle
  end
end
repeat
  local page = call('LRANGE', shard.pending, from, from + LOOK - 1)
  for _, locator in ipairs(page) do
    if sub(locator, 1, ID) == id then
      return change(engine.located(locator), 'r')
    end
  end
  if #page < LOOK then
    return engine.finish(nil, 'f', 0) -- it is in a bundle
  end
  from, to = from + LOOK, (parse('<d', page[LOOK], ID + 1))
until to > after
return engine.finish(nil, 'm', format('%.0f', to))
