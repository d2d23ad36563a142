#!lua flags=allow-oom
-- Removes a shard with all its messages.
--
-- KEYS: the shard, gone
-- ARGV: what, queue
-- Result: ok, or gone if this queue does not exist; or schema and a number that is
--   higher than this script knows
--
-- what: m mark the first of several shards, so that the queue is gone for all processes
-- that have it open, and an interrupted deletion can be recognized; d delete. A
-- tombstone keeps late processes from creating the queue again.

local TOMBSTONE_TTL = 604800000 -- milliseconds

local meta, gone, what, queue = KEYS[1], KEYS[25], ARGV[1], ARGV[2]
local found = redis.call('HGET', meta, 'queue')
if found and tonumber(redis.call('HGET', meta, 'schema') or '1') > NEWEST then
  return { 'schema', redis.call('HGET', meta, 'schema') }
end
local channel = string.sub(meta, 1, -5) .. 'wake'
if not found or (found ~= queue and found ~= queue .. '-') then
  return { redis.call('GET', gone) == queue and 'ok' or 'gone' }
end
if what == 'm' then
  redis.call('HSET', meta, 'queue', queue .. '-')
else
  redis.call('UNLINK', unpack(KEYS, 1, 24))
  redis.call('SET', gone, queue, 'PX', TOMBSTONE_TTL)
end
redis.pcall('SPUBLISH', channel, 'gone')
return { 'ok' }
