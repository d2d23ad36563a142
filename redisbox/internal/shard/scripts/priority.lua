-- Priorities. levels has the ready messages with a priority above 0, by priority, place and
-- id; those of priority 0 are in pending and returned. A receive compares the first message of
-- each priority. shard.prioritized says whether levels has any, and the number of the schema
-- keeps it, see schema.go; so other queues pay nothing.

local AGING, MAX_PRIORITY = 60000000, 9 -- driver.DefaultPriorityAging and driver.MaxPriority

-- ranked returns the member of levels that stands for a message.
function engine.ranked(e) return e.priority .. format('%016.0f', e.place) .. e.id end

-- rank puts a ready message into levels. unrank takes it out, and reports whether it was there.
function engine.rank(e)
  call('ZADD', shard.levels, 0, engine.ranked(e))
  shard.prioritized, shard.heads[e.priority] = true, nil
end

function engine.unrank(e)
  if e.priority == 0 or call('ZREM', shard.levels, engine.ranked(e)) == 0 then
    return false
  end
  shard.heads[e.priority] = nil
  return true
end

-- headOf returns the first ready message of a priority above 0, or false.
local function headOf(priority)
  if shard.heads[priority] == nil then
    local member = call('ZRANGEBYLEX', shard.levels, '[' .. priority, '(' .. priority .. ':', 'LIMIT', 0, 1)[1]
    local head = member and engine.get(sub(member, 18)) or false
    if head then
      head.priority, head.place = priority, tonumber(sub(member, 2, 17)) -- also if the entry is lost
    end
    shard.heads[priority] = head
  end
  return shard.heads[priority]
end

-- aging returns how long a message is ready until its level rises by one, 0 if it does not.
-- meta has it with the version of the configuration that it is from.
local function aging()
  local known = call('HGET', shard.meta, 'aging')
  if not known or parse('<d', known) ~= shard.version then
    local ok, settings = pcall(cjson.decode, call('HGET', shard.meta, 'settings') or '')
    local nanoseconds = ok and tonumber(settings.PriorityAging) or 0
    known = pack('<dd', shard.version, nanoseconds == 0 and AGING or math.max(math.ceil(nanoseconds / 1000), 0))
    call('HSET', shard.meta, 'aging', known)
  end
  return (parse('<d', known, 9))
end

-- level returns the priority of a message, and one more for each ageing period that it has been
-- ready for. The age of a message that was nacked begins at its place, which is a time, or when
-- the delay of the nack ended.
local function level(e)
  shard.aging = shard.aging or aging()
  local since = e.since > 0 and e.since or math.max(engine.born(e), e.place)
  if shard.aging == 0 or shard.at <= since then
    return e.priority
  end
  return math.min(e.priority + math.floor((shard.at - since) / shard.aging), MAX_PRIORITY)
end

-- nextOfAll returns the first ready message in the order of places, or of delivery: that with
-- the highest level, and of several that with the lowest place. first is that of priority 0, or
-- nil. Not for strict groups.
function engine.nextOfAll(first, byPlace)
  local top = first and not byPlace and level(first) or 0
  for priority = 1, MAX_PRIORITY do
    local e = headOf(priority)
    local rise = e and not byPlace and level(e) or 0
    if e and (not first or rise > top or (rise == top and (e.place < first.place or (e.place == first.place and e.id < first.id)))) then
      first, top = e, rise
    end
  end
  return first
end
