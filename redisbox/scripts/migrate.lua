-- Brings a shard of an earlier schema up to date, all of it at once. SCHEMA is the
-- number that the scripts of this version work with, see schema.go.
--
-- Schema 1 has no number in meta, and keeps the rules in the field config. Scripts
-- that know only schema 1 unpack that field before anything else, so a value that is
-- too short to hold one number stops all of them before they change anything.

local OLD_CONFIG = 'schema2' -- seven bytes; a number has eight

-- migrate changes the shard, and what was found of it, to SCHEMA.
local function migrate(found)
  local meta = KEYS[1]
  found[2] = redis.call('HGET', meta, 'config')
  redis.call('HSET', meta, 'schema', SCHEMA, 'rules', found[2], 'config', OLD_CONFIG)
end
