-- The dedup table of a shard: dedup has an entry for each key, windows the keys
-- in the order in which they were used. Only whole windows are forgotten: a full
-- table refuses.
--
-- An entry packs when it ends, the hash of the payload and the id of the
-- message. One that was claimed for a message of another shard adds that shard
-- and 1 while nobody has said that the message is there.
--
-- The letters: d duplicate (more: the id of the first), c conflict (more: the id
-- of the first), u claimed (more: id, shard), w the table is full (more: for how
-- many microseconds at least).

-- forget drops keys that are past their time, up to limit, and reports whether
-- there may be more.
function engine.forget(limit)
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

-- weed drops a key that is past its time behind one that is not, which happens when
-- the window has become shorter, and reports whether there was one. It looks at so
-- many, and not again in a call that has found none.
local WEEDS = 1000

function engine.weed()
  if shard.weeded then
    return false
  end
  for _, entry in ipairs(call('LRANGE', shard.windows, 0, WEEDS - 1)) do
    if parse('<d', entry) <= shard.now then
      call('LREM', shard.windows, 1, entry)
      local key = sub(entry, 9)
      local found = call('HGET', shard.dedup, key)
      if found and parse('<d', found) <= shard.now then
        return call('HDEL', shard.dedup, key) == 1
      end
    end
  end
  shard.weeded = true
  return false
end

-- judge returns the letter of a key that was used before, or cannot be, and what
-- goes with it; nil if the key is free.
function engine.judge(key, payload)
  local found = call('HGET', shard.dedup, key)
  if found then
    local ends, before, id = parse('<dc16c26', found)
    if ends > shard.now then
      if before ~= payload then
        return 'c', id
      elseif byte(found, 53) == 1 then
        return 'u', id .. parse('<H', found, 51)
      end
      return 'd', id
    end
  end
  if call('HLEN', shard.dedup) >= shard.dedupMax and not found and not engine.weed() then
    local oldest = call('LINDEX', shard.windows, 0)
    return 'w', format('%.0f', math.max(oldest and parse('<d', oldest) - shard.now or 0, 1))
  end
end

-- remember notes a key that is free.
function engine.remember(key, payload, id, claim)
  call('HSET', shard.dedup, key, pack('<dc16c26', shard.now + shard.window, payload, id) .. claim)
  call('RPUSH', shard.windows, pack('<d', shard.now + shard.window) .. key)
end
