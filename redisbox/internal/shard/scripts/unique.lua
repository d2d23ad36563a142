-- Unique keys. holders has, by the digest of a key, the id of the message that holds it. A
-- message takes its key when it arrives, and engine.remove frees it: every way out of the
-- shard leads there. A message with a key has an entry, and waits in returned, not in
-- pending, so that it can be taken out of the middle in few steps.
--
-- shard.keyed says whether holders has any, and the number of the schema keeps it, see
-- schema.go; so other queues pay nothing. dedupMax bounds holders, and the dedup table, each
-- for itself.

-- holder returns the id of the message that holds a key, or nil. A message whose entry was
-- damaged when it left is still in holders.
function engine.holder(key)
  local id = shard.keyed and call('HGET', shard.holders, key)
  if id and call('HEXISTS', shard.data, id) == 0 then
    call('HDEL', shard.holders, key)
    id = nil
  end
  return id or nil
end

-- keysFull reports whether no more keys can be held.
function engine.keysFull() return call('HLEN', shard.holders) >= shard.dedupMax end

-- holdKey lets a message that arrives hold its key, unless another one holds it.
function engine.holdKey(e)
  e.held, e.replaced = not engine.holder(e.unique), false
  if e.held then
    call('HSET', shard.holders, e.unique, e.id)
    shard.keyed = true
  end
end

-- originOf returns the time and the group of a record, as they are stored.
local function originOf(record)
  local length, from = byte(record, SENT_BYTES + 1), SENT_BYTES + 2
  if length >= 128 then -- a varint of two bytes
    length, from = length - 128 + 128 * byte(record, from), from + 1
  end
  return sub(record, 21, from + length - 1)
end

-- replace gives the message that holds a key another record, that of the message id, and
-- another due time. It keeps its place, its group, its priority and what is known of its
-- deliveries; its age and its time to live begin when it is due. It returns the code: p
-- replaced, h it is in flight, or damaged; f the body does not fit.
function engine.replace(holder, id, record, delay, ttl)
  local e, before = engine.get(holder), call('HGET', shard.data, holder)
  if e.nonce ~= 0 or e.unique == '' or #before <= SENT_BYTES then
    return 'h'
  end
  local size = parse('<I4', record, 17)
  if size > e.size and ((shard.maxMessages > 0 and engine.counted() > shard.maxMessages)
    or (shard.maxBytes > 0 and shard.bytes + size - e.size > shard.maxBytes)) then
    return 'f'
  end
  engine.unwait(e)
  if e.aged > 0 then
    call('ZREM', shard.ages, e.id)
  end
  if e.origin == '' then
    e.origin = originOf(before)
  end
  call('HSET', shard.data, e.id, record)
  shard.bytes, e.size, e.sentAs, e.replaced = shard.bytes + size - e.size, size, id, true
  -- Not before those that were sent before it in this call, whose seqs go beyond the time.
  e.aged, e.since, e.hold, e.ttl = -math.max(shard.at + delay, e.seq), 0, 0, ttl
  engine.startLife(e, delay)
  engine.wait(e, shard.at + delay)
  engine.expireByCount()
  return 'p'
end
