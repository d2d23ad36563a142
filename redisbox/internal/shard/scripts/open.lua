#!lua flags=allow-oom
-- Looks at a shard, creates it, or changes its configuration.
--
-- KEYS: the shard, gone
-- ARGV: what, queue, version, shards, config, settings
-- Result: status: ok, missing, gone, deleting, fixed or changed; and with all but
--   missing, gone and changed queue, version, settings, wall; or schema and a number
--   that is higher than this script knows
-- Uses: migrate
--
-- A queue gets a unique name when it is created, which tells it from earlier and later
-- queues that were called the same. The first shard decides: it names the queue, numbers
-- the versions of its configuration and has its settings.
--
-- what: l look; o open, which creates a missing shard under a new name that ends in
-- queue; c configure, which also changes an existing shard, if it still is called queue
-- and has this version (0: creates it if it still is missing), and otherwise answers
-- changed; h heal, which creates a missing shard under the name queue, unless that was
-- deleted; a adopt, for the other shards: make them follow the first.
--
-- config is packed without its version, see config.go. fixed: shards or strict groups
-- cannot change.

local gone = KEYS[25]
local meta = KEYS[1]
local what, queue, version, shards, config, settings = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4], ARGV[5], ARGV[6]
local found = redis.call('HMGET', meta, 'queue', 'rules', 'state', 'settings', 'shards', 'schema')
local time = redis.call('TIME')
local wall = time[1] * 1000000 + time[2]

local number = tonumber(found[6] or 1)
if found[1] and number > NEWEST then
  return { 'schema', found[6] }
elseif found[1] and number < SCHEMA then
  if what == 'l' then
    found[2] = redis.call('HGET', meta, 'config') -- looking changes nothing
  else
    migrate(found)
  end
end

local function configure(number)
  redis.call('HSET', meta, 'rules', struct.pack('<d', number) .. config, 'settings', settings, 'shards', shards)
  if struct.unpack('<d', config, 8 * 13 + 1) == 0 then
    redis.call('UNLINK', KEYS[14]) -- no more forwarding: dead letters stay here
  end
end

local function create(name, number)
  local run = redis.pcall('INFO', 'server')
  redis.call('HSET', meta, 'queue', name, 'schema', SCHEMA, 'config', OLD_CONFIG,
    'run', type(run) == 'string' and string.match(run, 'run_id:(%x+)') or '',
    'state', struct.pack('<dddddddddddd', wall, 0, 1, 0, 0, 0, math.huge, 0, 0, 0, 0, 0))
  configure(number)
  return { 'ok', name, number, settings, wall }
end

-- change puts another configuration in force. Setting next to 0 makes the next call apply
-- it to existing messages.
local function change(number)
  local before = found[3] -- next is the seventh number in it
  redis.call('HSET', meta, 'state', string.sub(before, 1, 48) .. struct.pack('<d', 0) .. string.sub(before, 57))
  configure(number)
  redis.pcall('SPUBLISH', string.sub(meta, 1, -5) .. 'wake', 'config')
  return { 'ok', found[1], number, settings, wall }
end

if found[1] and what == 'a' then
  local current = struct.unpack('<d', found[2])
  if found[1] == queue then
    if current < version then
      return change(version)
    end
    return { 'ok', found[1], current, found[4], wall }
  elseif found[1] > queue then
    return { 'gone' }
  end
  redis.call('UNLINK', unpack(KEYS)) -- left by an interrupted deletion
  found = {}
end

if found[1] then
  local current = struct.unpack('<d', found[2])
  if string.sub(found[1], -1) == '-' then
    return { 'deleting', found[1], current, found[4], wall }
  elseif what ~= 'c' then
    return { 'ok', found[1], current, found[4], wall }
  elseif found[1] ~= queue or current ~= version then
    return { 'changed' }
  elseif found[5] ~= shards or struct.unpack('<d', found[2], 9) ~= struct.unpack('<d', config) then
    return { 'fixed', found[1], current, found[4], wall }
  end
  return change(current + 1)
end

local tombstone = redis.call('GET', gone)
if what == 'l' then
  return { 'missing' }
elseif what == 'a' or what == 'h' then
  if tombstone and tombstone >= queue then
    return { 'gone' }
  end
  return create(queue, version)
end
if what == 'c' and version > 0 then
  return { 'changed' } -- it was deleted
end
local born = wall
if tombstone then
  born = math.max(born, tonumber(string.sub(tombstone, 1, 16)) + 1)
end
return create(string.format('%016.0f', born) .. queue, 1)
