-- The dedup table of a shard: dedup has a record for each key, windows the keys in the
-- order in which they were used. Only keys whose window has ended are forgotten: a full
-- table refuses messages.
--
-- A record packs when the window ends, the hash of the body and the id of the message.
-- The record of a key that was claimed for a message of another shard adds that shard,
-- and 1 until the message is confirmed to be there.
--
-- The codes: d duplicate (detail: the id of the first), c conflict (detail: the id of
-- the first), u claimed (detail: id, shard), w the table is full (detail: microseconds
-- until a key ends, at least).

-- forgetKeys drops keys whose window has ended, up to limit, and reports whether there
-- may be more.
function engine.forgetKeys(limit)
  local oldest = call('LINDEX', shard.windows, 0)
  if not oldest or parse('<d', oldest) > shard.now then
    return false
  end
  local ended, n = {}, 0
  for _, entry in ipairs(call('LRANGE', shard.windows, 0, limit - 1)) do
    local ends, key = parse('<d', entry), sub(entry, 9)
    if ends > shard.now then
      break
    end
    n = n + 1
    local found = call('HGET', shard.dedup, key)
    if found and parse('<d', found) == ends then
      ended[#ended + 1] = key
    end
  end
  if n > 0 then
    call('LTRIM', shard.windows, n, -1)
  end
  if #ended > 0 then
    call('HDEL', shard.dedup, unpack(ended))
  end
  return n == limit
end

-- dropEndedKey drops a key whose window has ended behind one whose window has not, which
-- happens when the configured window was shortened, and reports whether there was one.
-- It scans SCANNED_KEYS keys, and not again in a call that has found none.
local SCANNED_KEYS = 1000

function engine.dropEndedKey()
  if shard.noEndedKeys then
    return false
  end
  for _, entry in ipairs(call('LRANGE', shard.windows, 0, SCANNED_KEYS - 1)) do
    if parse('<d', entry) <= shard.now then
      call('LREM', shard.windows, 1, entry)
      local key = sub(entry, 9)
      local found = call('HGET', shard.dedup, key)
      if found and parse('<d', found) <= shard.now then
        return call('HDEL', shard.dedup, key) == 1
      end
    end
  end
  shard.noEndedKeys = true
  return false
end

-- checkKey returns the code of a key that was used before or cannot be used, and its
-- detail; nil if the key is free.
function engine.checkKey(key, bodyHash)
  local found = call('HGET', shard.dedup, key)
  if found then
    local ends, before, id = parse('<dc16c26', found)
    if ends > shard.now then
      if before ~= bodyHash then
        return 'c', id
      elseif byte(found, 53) == 1 then
        return 'u', id .. parse('<H', found, 51)
      end
      return 'd', id
    end
  end
  if call('HLEN', shard.dedup) >= shard.dedupMax and not found and not engine.dropEndedKey() then
    local oldest = call('LINDEX', shard.windows, 0)
    return 'w', format('%.0f', math.max(oldest and parse('<d', oldest) - shard.now or 0, 1))
  end
end

-- rememberKey records a key that is free.
function engine.rememberKey(key, bodyHash, id, claim)
  call('HSET', shard.dedup, key, pack('<dc16c26', shard.now + shard.window, bodyHash, id) .. claim)
  call('RPUSH', shard.windows, pack('<d', shard.now + shard.window) .. key)
end
