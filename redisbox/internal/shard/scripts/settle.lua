-- Settling deliveries.
--
-- ids are those of messages of one bundle. how packs the operation, the name of the
-- bundle, the number of each message in it, and the details: a ack; l ack late (place); n nack, r release, p put back
-- (delay, cause); e extend (visibility); g extend, or lease again (visibility); b dead-letter
-- (reason, failure, kind).
--
-- The codes: s settled, x the receipt has expired, f the dead letters are full, c
-- extended, but not as far as was asked for. After the codes comes for each c the time
-- granted, packed.

local MAX_RELEASES = 16 -- see driver.MaxReleases

-- endDelivery counts a delivery that is over, or takes it back: with r and p, if the message
-- was not given back too often before. A delivery that was leased again had ended, and was
-- counted, before.
local function endDelivery(what, e)
  if what == 'n' or e.releases >= MAX_RELEASES or e.again then
    e.releases = 0
    return
  end
  e.releases, e.deliveries = e.releases + 1, e.deliveries - 1
  if e.started then
    e.first = 0
  end
end

-- act settles a message that is in flight. It returns the code, and with c the time
-- granted.
local function act(what, e, detail)
  if what == 'e' or what == 'g' then
    local due = shard.now + parse('<d', detail)
    local cut = e.hold > 0 and e.hold < due and pack('<d', e.hold - shard.now)
    if cut then
      due = e.hold
    end
    call('ZADD', shard.invisible, due, e.id)
    engine.note(due)
    engine.advance()
    return cut and 'c' or 's', cut
  end
  local delay, reason, failure = 0, '', ''
  if what == 'n' or what == 'r' or what == 'p' then
    delay, failure = parse('<dHc0', detail)
  elseif what == 'b' then
    if engine.deadFull() then
      return 'f'
    end
    reason, failure, e.kind = parse('<Bc0Hc0Hc0', detail)
  end
  if failure ~= '' then
    e.failure = failure
  end
  engine.unlease(e)
  e.hold = 0
  if what == 'a' then
    engine.remove(e)
  elseif what == 'b' then
    engine.deadLetter(e, reason)
  else
    endDelivery(what, e)
    if what ~= 'r' and not shard.strict and not engine.exhausted(e) then
      e.place = engine.tail() -- a message that is not released goes to the tail of the queue
      e.since = delay > 0 and shard.at + delay or 0
    end
    engine.requeue(e, delay)
  end
  if shard.strict then
    engine.regroup(e.group)
  end
  engine.expireByCount()
  return 's'
end

-- lateAck acks a message whose delivery is over, if it has the same place: it waits there,
-- or another receiver has it. A message that was delivered has an entry. It returns the
-- code.
local PLACES = 1099511627776 -- receipts contain places modulo this, see shard.go

local function lateAck(id, place)
  engine.flush()
  local e = call('HEXISTS', shard.state, id) == 1 and engine.get(id)
  if not e or e.damaged or not engine.hasReturned(e) or e.reason == 'moving' or e.replaced
    or e.place % PLACES ~= place then
    return 'x'
  elseif e.nonce ~= 0 then
    return act('a', e)
  end
  engine.unwait(e)
  engine.remove(e)
  return 's'
end

-- leaseAgain leases a message whose latest delivery, with this nonce, has expired, if it
-- is still ready. It returns the code.
local function leaseAgain(id, nonce, visibility)
  engine.flush()
  local e = call('HEXISTS', shard.state, id) == 1 and engine.get(id)
  local ready = e and not e.damaged and e.nonce == 0 and e.hold == -nonce and not call('ZSCORE', shard.delayed, id)
    and not engine.outlived(e) and not e.replaced
  if not ready or shard.strict or (shard.maxInFlight > 0 and engine.inFlight() >= shard.maxInFlight) then
    return 'x'
  elseif visibility == 0 then
    return 's'
  end
  engine.unwait(e)
  e.again = true
  e.nonce, e.hold = nonce, shard.maxHold > 0 and shard.now + math.max(shard.maxHold, HOLD_FACTOR * visibility) or 0
  shard.changed[id] = e
  call('ZADD', shard.invisible, shard.now + visibility, id)
  engine.note(shard.now + visibility)
  return 's'
end

-- settle settles the deliveries in these arguments, in order. advance has ended expired
-- leases by now, so a receipt is valid exactly if it has the nonce of the latest
-- delivery: an ack after the deadline is refused, unless it is a late ack.
function engine.settle(from, to)
  local codes, grants = {}, {}
  for i = from, to, 2 do
    local ids, how = ARGV[i], ARGV[i + 1]
    local n, name = #ids / ID, sub(how, 2, 10)
    local what, detail = sub(how, 1, 1), sub(how, 11 + n)
    engine.splitBundle(name)
    for k = 1, n do
      local id, nonce = sub(ids, ID * (k - 1) + 1, ID * k), engine.nonceOf(name, byte(how, 10 + k))
      local e = engine.get(id)
      if e.nonce == nonce then
        local code, grant = act(what == 'l' and 'a' or what, e, detail)
        codes[#codes + 1] = code
        grants[#grants + 1] = grant or nil
      elseif what == 'g' then
        codes[#codes + 1] = leaseAgain(id, nonce, (parse('<d', detail)))
      else
        codes[#codes + 1] = what == 'l' and lateAck(id, parse('<d', detail)) or 'x'
      end
    end
  end
  codes = concat(codes)
  return string.find(codes, '[^s]') and codes .. concat(grants) or ''
end
