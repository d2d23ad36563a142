-- A bundle is up to 16 messages that one call has leased, as long as they are only
-- acked. It is one member of invisible, by its name, and one field of bundles; its
-- messages have no entries. That makes leasing and acking cheap, see batch.lua. For any
-- other operation the bundle is split first: then its messages are in flight one by
-- one, each with an entry. The key of bundles is called manifests.
--
-- The name is the number of the call's first delivery, packed, and the number of the
-- bundle in that call. The field packs the end of the lease, when it began in wall
-- time, the latest time it can be extended to, and the bytes of the bodies; then the
-- locators of the messages, the sizes of their bodies, and their numbers in the bundle.
-- The number of a delivery is the sum of these three numbers, see nonceOf.

-- nonceOf returns the number of a delivery.
function engine.nonceOf(name, index)
  return parse('<d', name) + BUNDLE_MAX * byte(name, 9) + index
end

-- splitBundle gives the messages of a bundle entries, and returns how many they are. A
-- bundle that does not exist was split or settled before.
function engine.splitBundle(name)
  local packed = call('HGET', shard.bundles, name)
  if not packed then
    return 0
  end
  local due, first, hold = parse('<ddd', packed)
  local n = (#packed - BUNDLE_HEAD) / BUNDLE_CELL
  local leases = {}
  for i = 0, n - 1 do
    local locator = sub(packed, BUNDLE_HEAD + LOCATOR * i + 1, BUNDLE_HEAD + LOCATOR * (i + 1))
    local e = engine.fresh(sub(locator, 1, ID), parse('<d', locator, ID + 1), (parse('<I4', packed, BUNDLE_HEAD + LOCATOR * n + 4 * i + 1)))
    e.deliveries, e.first, e.started, e.hold, e.kept = 1, first, true, hold, true
    e.nonce = engine.nonceOf(name, byte(packed, BUNDLE_HEAD + (LOCATOR + 4) * n + i + 1))
    shard.entries[e.id], shard.changed[e.id] = e, e
    leases[2 * i + 1], leases[2 * i + 2] = format('%.0f', due), e.id
  end
  call('HDEL', shard.bundles, name)
  call('ZREM', shard.invisible, name)
  call('ZADD', shard.invisible, unpack(leases))
  shard.bundleCount, shard.bundledCount = shard.bundleCount - 1, shard.bundledCount - n
  return n
end

-- splitAllBundles splits all bundles, and reports whether the budget sufficed.
function engine.splitAllBundles()
  while shard.bundleCount > 0 do
    if shard.budget <= 0 then
      return false
    end
    local names = call('HRANDFIELD', shard.bundles, 16)
    for _, name in ipairs(names) do
      shard.budget = shard.budget - engine.splitBundle(name)
    end
    if #names == 0 then
      shard.bundleCount, shard.bundledCount = 0, 0 -- another process has been at the bundles
    end
  end
  engine.flush()
  return true
end
