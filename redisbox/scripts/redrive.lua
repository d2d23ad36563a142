#!lua flags=allow-oom
-- Makes dead letters ready again, at the tail and in the order given.
--
-- KEYS: the shard
-- ARGV: queue, floor, fence, session, turn; for each letter id
-- Result: head; how many were moved; 1 if it stopped because the queue is full
-- Uses: head again time shard entry haul order fate advance begin
--
-- A letter that is on its way to another queue is passed over: it may be there
-- already.


-- revive moves a letter out of its grave and returns its entry and whether there
-- is room for it.
local function revive(id)
  local grave = call('HGET', shard.graves, id)
  local length = grave and parse('<I4', grave)
  local e = grave and engine.decode(id, sub(grave, 5, 4 + length))
  if not e then
    return nil, true
  elseif not engine.room(e.size) then
    return nil, false
  end
  call('HSET', shard.data, id, sub(grave, 5 + length))
  engine.discard(id)
  return e, true
end

local moved, full = 0, 0
for i = 6, #ARGV do
  local id = ARGV[i]
  if call('ZSCORE', shard.dead, id) and not call('ZSCORE', shard.outbox, id) then
    local e, fits = revive(id)
    if not fits then
      full = 1
      break
    elseif e then
      e.seq = engine.tail()
      e.place = e.seq
      e.deliveries, e.redrives, e.aged = 0, e.redrives + 1, 0
      e.reason, e.kind, e.deadAt, e.kept = '', '', 0, true
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
