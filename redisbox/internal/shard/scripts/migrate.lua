-- Brings a shard of an earlier schema up to date, all of it at once. SCHEMA is the
-- number that the scripts of this version work with, see schema.go.
--
-- Schema 1 has no number in meta, and keeps the rules in the field config. Scripts
-- that know only schema 1 unpack that field before anything else, so a value that is
-- too short to hold one number stops all of them before they change anything.
--
-- With strict groups, schema 1 has delayed messages in groups too, and in out only
-- how many messages of a group are in flight; for schema 2 see strict.lua.

local OLD_CONFIG = 'schema2' -- seven bytes; a number has eight
local GROUP = 16 -- length of the names of groups

-- memberOf returns the place of a message, how often it was delivered, and its member of
-- groups and out; nil if its entry is damaged.
local function memberOf(id)
  local entry = redis.call('HGET', KEYS[7], id)
  local ok, place, _, deliveries, _, _, _, _, _, _, _, group = pcall(struct.unpack, '<ddddddddddBc0', entry)
  if ok and #group == GROUP then
    return place, deliveries, group .. string.format('%016.0f', place) .. id
  end
end

-- nextGroup returns the next group that has messages, and the place of its first one.
local function nextGroup(groups, after)
  local first = redis.call('ZRANGEBYLEX', groups, after and '(' .. after .. ':' or '-', '+', 'LIMIT', 0, 1)[1]
  if first then
    return string.sub(first, 1, GROUP), tonumber(string.sub(first, GROUP + 1, GROUP + 16))
  end
end

-- regroupAll turns strict groups into those of schema 2.
local function regroupAll()
  local invisible, delayed, groups, eligible, out, turns = KEYS[4], KEYS[5], KEYS[11], KEYS[12], KEYS[13], KEYS[20]
  redis.call('UNLINK', out, eligible)
  local blocked = {} -- the places of the first blockers, by group
  local function block(place, member)
    local group = string.sub(member, 1, GROUP)
    redis.call('ZADD', out, 0, member)
    blocked[group] = math.min(blocked[group] or math.huge, place)
  end
  for _, id in ipairs(redis.call('ZRANGE', delayed, 0, -1)) do
    local place, deliveries, member = memberOf(id)
    if member then
      redis.call('ZREM', groups, member)
      if deliveries > 0 then
        block(place, member)
      end
    end
  end
  for _, id in ipairs(redis.call('ZRANGE', invisible, 0, -1)) do
    local place, _, member = memberOf(id)
    if member then
      block(place, member)
    end
  end
  local group, place = nextGroup(groups)
  while group do
    if place < (blocked[group] or math.huge) then
      redis.call('ZADD', eligible, place, group)
      redis.call('ZADD', turns, place, group)
    end
    group, place = nextGroup(groups, group)
  end
end

-- migrate changes the shard, and the fields that were read of it, to SCHEMA.
local function migrate(found)
  local meta = KEYS[1]
  found[2] = redis.call('HGET', meta, 'config')
  if struct.unpack('<d', found[2], 9) ~= 0 then -- groups are strict
    regroupAll()
  end
  redis.call('HSET', meta, 'schema', SCHEMA, 'rules', found[2], 'config', OLD_CONFIG)
end
