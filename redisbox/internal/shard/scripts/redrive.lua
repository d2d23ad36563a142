#!lua flags=allow-oom
-- Makes dead letters ready again, at the tail and in the order given.
--
-- KEYS: the shard
-- ARGV: queue, floor, fence, session, turn; for each dead letter id
-- Result: head; how many were moved; 1 if it stopped because the queue is full
-- Uses: head session time shard entry bundle order priority strict retention ttl dead advance advance_first
--
-- A dead letter that is being forwarded to another queue is passed over: it may be there
-- already.

-- restore moves a dead letter back into data. It returns its entry, and whether there is
-- room for it.
local function restore(id)
  local packed = call('HGET', shard.deadLetters, id)
  local length = packed and parse('<I4', packed)
  local e = packed and engine.decode(id, sub(packed, 5, 4 + length))
  if not e then
    return nil, true
  elseif not engine.room(e.size) then
    return nil, false
  end
  call('HSET', shard.data, id, sub(packed, 5 + length))
  engine.discard(id)
  return e, true
end

local moved, full = 0, 0
for i = 6, #ARGV do
  local id = ARGV[i]
  if call('ZSCORE', shard.dead, id) and not call('ZSCORE', shard.outbox, id) then
    local e, fits = restore(id)
    if not fits then
      full = 1
      break
    elseif e then
      engine.madeRoom() -- what waited for it comes first
      e.seq = engine.tail()
      e.place = e.seq
      e.deliveries, e.releases, e.redrives, e.aged = 0, 0, e.redrives + 1, 0
      e.since = 0
      e.reason, e.kind, e.deadAt, e.kept = '', '', 0, true
      engine.startLife(e, 0)
      shard.bytes = shard.bytes + e.size
      shard.count = shard.count and shard.count + 1
      shard.entries[id] = e
      engine.wait(e, shard.now)
      engine.flush()
      moved = moved + 1
      engine.expireByCount()
      engine.madeRoom()
    end
  end
end
return engine.finish(nil, moved, full)
