#!lua flags=allow-oom
-- Makes dead letters ready again, at the tail and in the order given.
--
-- KEYS: the shard
-- ARGV: queue, floor, fence, session, turn; for each dead letter id
-- Result: head; how many were moved; 1 if it stopped because the queue is full; the id of
--   the first that stays because another message holds its unique key, and of that message, or nothing
-- Uses: head session time shard entry bundle order priority strict retention ttl dead advance unique advance_first
--
-- A dead letter that is being forwarded to another queue is passed over: it may be there
-- already.

-- restore moves a dead letter back into data. It returns its entry, or why it stays: f if it
-- does not fit, or the id of the message that holds its unique key.
local function restore(id)
  local packed = call('HGET', shard.deadLetters, id)
  local length = packed and parse('<I4', packed)
  local e = packed and engine.decode(id, sub(packed, 5, 4 + length))
  if not e then
    return nil
  end
  local holder = e.unique ~= '' and engine.holder(e.unique)
  if not engine.room(e.size) or (e.unique ~= '' and not holder and engine.keysFull()) then
    return nil, 'f'
  elseif holder then
    return nil, holder
  end
  call('HSET', shard.data, id, sub(packed, 5 + length))
  engine.discard(id)
  return e
end

local moved, full, held = 0, 0, ''
for i = 6, #ARGV do
  local id = ARGV[i]
  if call('ZSCORE', shard.dead, id) and not call('ZSCORE', shard.outbox, id) then
    local e, stays = restore(id)
    if stays == 'f' then
      full = 1
      break
    elseif stays and held == '' then
      held = id .. stays
    elseif e then
      engine.madeRoom() -- what waited for it comes first
      e.seq = engine.tail()
      e.place = e.seq
      e.deliveries, e.releases, e.redrives, e.aged = 0, 0, e.redrives + 1, 0
      e.since = 0
      e.reason, e.kind, e.deadAt, e.kept = '', '', 0, true
      if e.unique ~= '' then
        engine.holdKey(e)
      end
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
return engine.finish(nil, moved, full, held)
