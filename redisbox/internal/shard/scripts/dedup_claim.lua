#!lua flags=allow-oom
-- Claims a dedup key for a message of another shard, or ends a claim.
--
-- KEYS: the shard
-- ARGV: queue, floor, fence, session, turn, what, key, bodyHash, id, target
-- Result: head; a code; its detail
-- Uses: head session time shard entry bundle order priority strict retention ttl dead advance dedup advance_first
--
-- A key belongs to one shard and a group to another; this is how the two agree on one
-- message. First the key is claimed, then the message is sent as an arrival, which can
-- be repeated, and then the claim is confirmed; or released, if the message was refused.
-- what: c claim, s (sure) confirm, r release. target is the shard of the message; with s it
-- can be the id of a message of that shard that holds its unique key, which the key stands for then.
--
-- The codes: s done, and those of dedup.lua.

local what, key, bodyHash, id, target = ARGV[6], ARGV[7], ARGV[8], ARGV[9], ARGV[10]

if what == 'c' then
  if engine.forgetKeys(shard.budget) and call('HLEN', shard.dedup) >= shard.dedupMax then
    return engine.again()
  end
  local code, detail = engine.checkKey(key, bodyHash)
  if code then
    return engine.finish(nil, code, detail)
  end
  engine.rememberKey(key, bodyHash, id, pack('<HB', tonumber(target), 1))
  return engine.finish(nil, 's', '')
end

local found, first = call('HGET', shard.dedup, key), #target == ID and target or id
if what == 's' and not found then
  engine.rememberKey(key, bodyHash, first, '') -- a sender that was refused has released it
elseif found and #found > 50 and sub(found, 25, 50) == id then
  if what == 's' then
    call('HSET', shard.dedup, key, sub(found, 1, 24) .. first)
  elseif byte(found, 53) == 1 then
    call('HDEL', shard.dedup, key)
  end
end
return engine.finish(nil, 's', '')
