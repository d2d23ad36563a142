-- A haul is up to 16 messages that one call has leased, for as long as nothing
-- happens to them but being acked. It is one member of invisible, by its name, and
-- has a manifest; its messages have no entries. That makes leasing and acking
-- cheap, see serve.lua. For everything else a haul is split first: then its
-- messages are in flight one by one, each with an entry.
--
-- The name is the number of the call's first delivery, packed, and the number of
-- the haul in that call. The manifest packs the end of the lease, when it began in
-- wall time, the most it can be extended to, and how many bytes the bodies have;
-- then of each message the ticket, the size of its body, and its number in the
-- haul. Deliveries are numbered by these three numbers together.

-- nonceOf returns the number of a delivery.
function engine.nonceOf(name, index)
  return parse('<d', name) + HAUL_MOST * byte(name, 9) + index
end

-- split gives the messages of a haul entries, and returns how many they are. A
-- haul that is not there any more is split already, or settled.
function engine.split(name)
  local manifest = call('HGET', shard.manifests, name)
  if not manifest then
    return 0
  end
  local due, first, hold = parse('<ddd', manifest)
  local n = (#manifest - HAUL_HEAD) / HAUL_CELL
  local leases = {}
  for i = 0, n - 1 do
    local ticket = sub(manifest, HAUL_HEAD + TICKET * i + 1, HAUL_HEAD + TICKET * (i + 1))
    local e = engine.fresh(sub(ticket, 1, ID), parse('<d', ticket, ID + 1), (parse('<I4', manifest, HAUL_HEAD + TICKET * n + 4 * i + 1)))
    e.deliveries, e.first, e.hold, e.kept = 1, first, hold, true
    e.nonce = engine.nonceOf(name, byte(manifest, HAUL_HEAD + (TICKET + 4) * n + i + 1))
    shard.entries[e.id], shard.changed[e.id] = e, e
    leases[2 * i + 1], leases[2 * i + 2] = format('%.0f', due), e.id
  end
  call('HDEL', shard.manifests, name)
  call('ZREM', shard.invisible, name)
  call('ZADD', shard.invisible, unpack(leases))
  shard.hauls, shard.hauled = shard.hauls - 1, shard.hauled - n
  return n
end

-- splitAll splits all hauls, and reports whether it could within the budget.
function engine.splitAll()
  while shard.hauls > 0 do
    if shard.budget <= 0 then
      return false
    end
    local names = call('HRANDFIELD', shard.manifests, 16)
    for _, name in ipairs(names) do
      shard.budget = shard.budget - engine.split(name)
    end
    if #names == 0 then
      shard.hauls, shard.hauled = 0, 0 -- somebody else has been at the manifests
    end
  end
  engine.flush()
  return true
end
