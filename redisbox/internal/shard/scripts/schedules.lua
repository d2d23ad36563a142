#!lua flags=allow-oom
-- Reads schedules; see fire.lua.
--
-- KEYS: the shard
-- ARGV: queue, floor, fence, session, turn; for each schedule name
-- Result: head; for each schedule what is stored, or nothing; if none is named, a list of
--   all names
-- Uses: head session time shard entry bundle order priority strict retention ttl dead advance advance_first

local found = {}
for i = 6, #ARGV do
  found[#found + 1] = call('HGET', shard.meta, 'r:' .. ARGV[i]) or ''
end
if #ARGV < 6 and call('HGET', shard.meta, 'schedules') then
  for _, field in ipairs(call('HKEYS', shard.meta)) do
    if sub(field, 1, 2) == 'r:' then
      found[#found + 1] = sub(field, 3)
    end
  end
end
return engine.finish(nil, found)
