-- The fast path of leasing: messages that were only sent are taken off the list and
-- become bundles. Messages that no request takes are put back; all of them if one has an
-- entry or cannot be delivered.
if simple and demand > 0 and hasReturned == 0 and not prioritized
  and (maxInFlight == 0 or maxInFlight - call('ZCARD', invisible) + bundleCount - bundledCount >= demand) then
  local wanted = demand
  if wanted > 16 then -- not much more than the answer may hold
    local count = call('LLEN', pending) + call('ZCARD', delayed) + call('ZCARD', invisible) - bundleCount + bundledCount
    wanted = math.min(wanted, 16 + math.floor(MOST * count / (bytes + 1)))
  end
  local locators, sent, good = call('LPOP', pending, wanted) or {}, {}, true
  for i = 1, #locators do
    ids[i], good = sub(locators[i], 1, ID), good and #locators[i] == LOCATOR
  end
  if good and #ids > 0 then
    sent = call('HMGET', data, unpack(ids))
  end
  local sizes, size, unserved = {}, 0, false
  counts = {}
  for i = RECEIVE, #ARGV, 5 do
    local max, most, unlucky = tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2]), ARGV[i + 4] == '1'
    for _ = 1, ARGV[i] do
      local got, length = 0, 0
      while good and got < max and taken < #ids do
        local message = sent[taken + 1]
        good = message and #message >= SENT_BYTES
        local body = good and parse('<I4', message, 17)
        if not good or (got > 0 and most > 0 and length + body > most) or (taken > 0 and size + #message > MOST) then
          break
        end
        taken, got, length, size = taken + 1, got + 1, length + body, size + #message
        sizes[taken], answers[taken + 4] = body, message
      end
      local cut = got == 0 and (taken < #ids or (wanted < demand and #ids == wanted))
      counts[#counts + 1] = char(got % 256, (got - got % 256) / 256, cut and 2 or 0)
      unserved = unserved or (got == 0 and unlucky)
    end
  end
  if not good then
    counts, taken = nil, 0
  elseif taken > 0 then
    local due = now + visibility
    local packed, over = pack('<ddd', due, wall, maxHold > 0 and now + math.max(maxHold, HOLD_FACTOR * visibility) or 0), format('%.0f', due)
    local leases, contents = {}, {}
    for from = 0, taken - 1, BUNDLE_MAX do
      local to, total, k = math.min(from + BUNDLE_MAX, taken), 0, #leases
      for i = from + 1, to do
        total = total + sizes[i]
      end
      local name = NONCE .. char(from / BUNDLE_MAX)
      leases[k + 1], leases[k + 2], contents[k + 1] = over, name, name
      contents[k + 2] = packed .. pack('<d', total) .. concat(locators, '', from + 1, to)
        .. pack('<' .. string.rep('I4', to - from), unpack(sizes, from + 1, to)) .. sub(NUMBERS, 1, to - from)
    end
    call('ZADD', invisible, unpack(leases))
    call('HSET', bundles, unpack(contents))
    bundleCount, bundledCount = bundleCount + #leases / 2, bundledCount + taken
    answers[4] = concat(locators, '', 1, taken)
    local first = SLOT_KEYS + 3 * (ARGV[13] + ARGV[14]) + 1 -- the slots of the first bucket
    for i = 1, KEYS[first] and taken or 0 do
      local message, slot = answers[i + 4], nil
      local group = byte(message, SENT_BYTES + 1) or 128
      local from = SENT_BYTES + 2 + group -- the length of the reply address; these lengths are mostly one byte
      local length = group < 128 and byte(message, from) or 128
      if length < 128 and sub(message, from + 1, from + 6) == 'reply:' then
        local id, bucket = ARGV[15] .. sub(message, from + 7, from + length), 5 -- FNV-1a modulo 16, see Replies.bucket
        for k = 1, #id do
          bucket = bit.bxor(bucket, byte(id, k) % 16) * 3 % 16
        end
        slot = call('HGET', KEYS[first + bucket], id)
      end
      -- A slot that ends soon may have expired by the time of its bucket.
      answers[4] = answers[4] .. (slot and byte(slot) == 112 and parse('<d', slot, 18) > wall + 1000000 and '1' or '0') -- p
    end
    if due < next then
      next = due
    end
  end
  if taken < #ids then
    local back = {}
    for i = #ids, taken + 1, -1 do
      back[#back + 1] = locators[i]
    end
    call('LPUSH', pending, unpack(back))
  end
  if good then
    counts = concat(counts)
    if unserved or ARGV[12] == '1' then
      left = call('LLEN', pending)
      if maxInFlight > 0 then
        left = math.min(left, maxInFlight - call('ZCARD', invisible) + bundleCount - bundledCount)
      end
      if left == 0 then
        wantsReady, wantsDue = 1, 1
      end
    end
  end
end

if simple and (counts or demand == 0) then
  settled, added, counts = settled or '', added or '', counts or ''
  local results = pack('<HHHc0c0c0', #settled, #added, #counts, settled, added, counts) .. resolved
  fast, answers[3] = answers, pack('<d', left) .. results
  memory = pack('<d', turn) .. 's' .. results .. concat(ids, '', 1, taken)
end
