#!lua flags=allow-oom
-- Reserves ready messages for a move to another queue.
--
-- KEYS: the shard
-- ARGV: queue, floor, fence, session, turn, nonce, target, hold, last, limit, most;
--   for each message id, place
-- Result: head; the latest place; 1 if there may be more; for each message id,
--   entry, sent
-- Uses: head session time shard entry bundle order priority strict retention ttl dead advance receive advance_first
--
-- A reserved message is in flight, with the reason moving and the target as its kind,
-- until move_finish.lua records the outcome. If that does not happen within hold, the
-- move has stalled, see advance.lua: then the next call reserves the message first, with
-- the nonce and the target that it has.
--
-- Without a target only stalled messages are reserved. With ids, it is those that are
-- still ready; otherwise the first that would be delivered, without regard to priorities, and whose place is
-- at most last. limit bounds how many, and most the length of the answer.

local nonce, target, hold, last = tonumber(ARGV[6]), ARGV[7], tonumber(ARGV[8]), tonumber(ARGV[9])
local limit, most = tonumber(ARGV[10]), tonumber(ARGV[11])
local answers, ids, size, more = {}, {}, 0, 0

local function show(e, sent)
  ids[#ids + 1] = e.id
  size = size + #sent
  engine.show(answers, e.id, engine.encode(e), sent)
end

-- A repeated call returns the same messages, as far as they are still reserved.
if repeated then
  for i = 2, #repeated, ID do
    local id = sub(repeated, i, i + ID - 1)
    local e, sent = engine.get(id), call('HGET', shard.data, id)
    if sent and e.reason == 'moving' then
      show(e, sent)
    end
  end
  return engine.finish(repeated, format('%.0f', shard.last), 1, unpack(answers))
end

-- out reserves a message that is in no order any more. The mark of its latest delivery,
-- see leaseAgain in settle.lua, is in deadAt meanwhile: the message may stay here.
local function out(e, sent)
  e.deadAt = math.min(e.hold, 0)
  e.nonce, e.hold, e.reason, e.kind, e.kept = nonce + #ids, hold, 'moving', target, true
  shard.entries[e.id], shard.changed[e.id] = e, e
  call('ZADD', shard.invisible, shard.now + hold, e.id)
  engine.note(shard.now + hold)
  if shard.strict then
    engine.hold(e)
  end
  show(e, sent)
end

-- resume reserves messages whose move has stalled.
local function resume()
  for _, name in ipairs(call('ZRANGEBYSCORE', shard.arrivals, 'inf', 'inf', 'LIMIT', 0, limit)) do
    local e, sent = engine.get(sub(name, 2)), call('HGET', shard.data, sub(name, 2)) or ''
    if #ids > 0 and size + #sent > most then
      more = 1
      return
    end
    call('ZREM', shard.arrivals, name)
    if e.reason == 'moving' then
      call('ZADD', shard.invisible, shard.now + e.hold, e.id)
      engine.note(shard.now + e.hold)
      show(e, sent)
    end
  end
end

-- takeFirst reserves the next messages that would be delivered. Messages that were
-- delivered too often move too: in the target they have no deliveries.
local function takeFirst()
  while #ids < limit do
    local e, sent = nextReady(shard.eligible, true)
    if not e or (last > 0 and e.place > last) then
      return
    end
    local damaged = undeliverable(e, sent) == 'integrity'
    if (damaged and shard.budget <= 0) or (not damaged and #ids > 0 and size + #sent > most) then
      more = 1
      return
    end
    take(e)
    if damaged then
      shard.budget = shard.budget - 1
      engine.deadLetterOrWait(e, 'integrity', 0)
    else
      out(e, sent)
    end
  end
end

-- withdraw takes a ready message out of its order. It returns its entry, or nil if it is
-- not ready.
local function withdraw(id, place)
  local e = call('HEXISTS', shard.state, id) == 1 and engine.get(id)
  if not e then
    e = engine.fresh(id, place, engine.sizeOf(id)) -- LREM below shows whether it is in pending
  elseif e.nonce ~= 0 or e.damaged then
    return nil
  end
  local gone
  if not shard.strict then
    gone = engine.unrank(e) or call('ZREM', shard.returned, id) == 1 or call('LREM', shard.pending, 1, engine.locator(e)) == 1
  else
    local bound = shard.taken[e.group] or engine.blocker(e.group)
    gone = (not bound or e.place < bound) and call('ZREM', shard.groups, engine.member(e)) == 1
  end
  if gone then
    engine.leaveLife(e)
    return e
  end
end

local function takeNamed()
  for i = 12, #ARGV, 2 do
    local sent = call('HGET', shard.data, ARGV[i])
    if #ids == limit or (sent and #ids > 0 and size + #sent > most) then
      more = 1
      return
    end
    local e = sent and #sent >= SENT_BYTES and withdraw(ARGV[i], tonumber(ARGV[i + 1]))
    if e then
      out(e, sent)
    end
  end
end

resume()
if target ~= '' and #ARGV > 11 then
  takeNamed()
elseif target ~= '' then
  takeFirst()
end
local groups = shard.takenOrder
shard.taken, shard.takenOrder = {}, {}
engine.flush()
for _, group in ipairs(groups) do
  engine.regroup(group)
end
return engine.finish('s' .. concat(ids), format('%.0f', shard.last), more, unpack(answers))
