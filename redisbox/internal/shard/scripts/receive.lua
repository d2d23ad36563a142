-- Leasing ready messages to requests, in the order of their levels and places; with strict
-- groups group by group.
--
-- Deliveries are numbered from a random nonce: a counter on the server could give out a
-- number twice after a failover. waits is 1 for a request that will wait for messages if
-- it gets none, and others is 1 if more receivers wait in the calling process. Why a
-- request got none: 1, the in-flight limit is reached; 2, the answer is full, or too
-- many messages were dead-lettered before one could be delivered.

-- show adds a message to an answer.
function engine.show(answers, id, entry, sent)
  local n = #answers
  answers[n + 1], answers[n + 2], answers[n + 3] = id, entry, sent
end

-- nextReady returns the next message to deliver and its record, or nil. With strict
-- groups it is the first of the group that is first in groups: eligible or turns. With byPlace
-- priorities do not count.
local function nextReady(groups, byPlace)
  local e
  if shard.strict then
    local group = call('ZRANGE', groups, 0, 0)[1]
    if not group then
      return nil
    end
    local id, place = engine.head(group)
    e = engine.get(id)
    e.group, e.place = group, place
  else
    e = engine.first()
    if shard.prioritized then
      e = engine.nextOfAll(e, byPlace)
    end
  end
  return e, e and call('HGET', shard.data, e.id)
end

-- take removes the message that nextReady returned from its order.
local function take(e)
  engine.leaveLife(e)
  if shard.strict then
    call('ZREM', shard.groups, engine.member(e))
  elseif not engine.unrank(e) and call('ZREM', shard.returned, e.id) == 0 then
    call('LPOP', shard.pending) -- it is the first of returned or of pending
  end
end

-- undeliverable returns why a message cannot be delivered, or nil.
local function undeliverable(e, sent)
  if not sent or #sent < SENT_BYTES or e.damaged then
    e.failure = 'the stored message is missing or damaged'
    return 'integrity'
  elseif engine.exhausted(e) then
    return 'max_attempts'
  elseif engine.outlived(e) then
    return 'expired'
  end
end

-- lease leases a message.
local function lease(e, nonce, visibility)
  e.deliveries, e.nonce, e.kept, e.again, e.started = e.deliveries + 1, nonce, true, false, e.first == 0
  e.hold = shard.maxHold > 0 and shard.now + math.max(shard.maxHold, HOLD_FACTOR * visibility) or 0
  if e.started then
    e.first = shard.wall
  end
  shard.changed[e.id] = e
  call('ZADD', shard.invisible, shard.now + visibility, e.id)
  engine.note(shard.now + visibility)
  if shard.strict then
    engine.hold(e)
  end
end

-- receive leases messages to the requests that begin at ARGV[from]. It returns how many
-- more could be received now, the counts of the requests, and the messages and their ids.
function engine.receive(from, nonce, most, others)
  local answers, ids, counts, size, unserved = {}, {}, {}, 0, false
  local ceiling = shard.maxInFlight > 0 and shard.maxInFlight - engine.inFlight() or INFINITE

  local function serve(max, maxBytes, visibility)
    local got, length = 0, 0
    while got < max and not shard.paused do
      local e, sent = nextReady(shard.turns)
      if not e then
        break
      end
      local reason = undeliverable(e, sent)
      if reason and shard.budget <= 0 then
        return got, got == 0 and 2 or 0 -- the caller asks again
      elseif reason then
        shard.budget = shard.budget - 1
        take(e)
        if reason == 'expired' then
          engine.expireOrWait(e)
        else
          engine.deadLetterOrWait(e, reason, 0)
        end
      elseif #ids >= ceiling then
        return got, got == 0 and 1 or 0
      elseif got > 0 and maxBytes > 0 and length + e.size > maxBytes then
        break
      elseif #ids > 0 and size + #sent > most then
        return got, got == 0 and 2 or 0
      else
        take(e)
        lease(e, nonce + #ids, visibility)
        engine.show(answers, e.id, engine.encode(e), sent)
        ids[#ids + 1] = e.id
        got, length, size = got + 1, length + e.size, size + #sent
      end
    end
    return got, 0
  end

  for i = from, #ARGV, 5 do
    for _ = 1, ARGV[i] do
      local got, why = serve(tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2]), tonumber(ARGV[i + 3]))
      counts[#counts + 1] = char(got % 256, math.floor(got / 256), why)
      unserved = unserved or (got == 0 and ARGV[i + 4] == '1')
      engine.endBatch() -- the next request is another batch
    end
  end
  engine.flush()
  engine.advance() -- with visibility 0 they are ready again

  local left = 0
  if unserved or others then
    left = math.max(engine.available(), 0)
    if left == 0 then
      shard.wantsReady, shard.wantsDue = 1, 1
    end
  end
  return left, concat(counts), answers, ids
end
