-- The short way of settling: nothing but acks. Messages of hauls are crossed off
-- the manifests, and have no entries.
if simple and PLAIN > SETTLE then
  local names, found = {}, {}
  for i = SETTLE + 1, PLAIN - 1, 2 do
    local name = sub(ARGV[i], 2, 10)
    if found[name] == nil then
      names[#names + 1], found[name] = name, false
    end
  end
  for i, manifest in ipairs(call('HMGET', manifests, unpack(names))) do
    found[names[i]] = manifest and { manifest = manifest, size = (#manifest - HAUL_HEAD) / HAUL_CELL, crossed = {}, count = 0 }
  end

  local acked, alone, aged, letters, all = {}, {}, {}, {}, true -- letters: a number is a place in ARGV
  for i = SETTLE, PLAIN - 1, 2 do
    local id, how = ARGV[i], ARGV[i + 1]
    local haul = found[sub(how, 2, 10)]
    if haul then
      local numbers = HAUL_HEAD + (TICKET + 4) * haul.size
      local at = string.find(haul.manifest, sub(how, 11), numbers + 1, true)
      local from = at and HAUL_HEAD + TICKET * (at - numbers - 1)
      if from and not haul.crossed[from] and sub(haul.manifest, from + 1, from + ID) == id then
        haul.crossed[from], haul.count = true, haul.count + 1
        acked[#acked + 1] = id
        letters[#letters + 1] = 's'
      else
        letters[#letters + 1], all = 'x', false
      end
    else
      alone[#alone + 1] = id
      letters[#letters + 1] = i
    end
  end

  if #alone > 0 then
    local entries, n, removed, seen = call('HMGET', state, unpack(alone)), 0, {}, {}
    for k, i in ipairs(letters) do
      if type(i) == 'number' then
        n = n + 1
        local id, how, entry = ARGV[i], ARGV[i + 1], entries[n]
        local nonce = parse('<d', how, 2) + HAUL_MOST * byte(how, 10) + byte(how, 11)
        if entry and #entry >= ENTRY_BYTES and not seen[id] and (parse('<d', entry, 25)) == nonce then
          local size, isAged = parse('<dd', entry, 49)
          bytes, letters[k], seen[id] = bytes - size, 's', true
          acked[#acked + 1], removed[#removed + 1] = id, id
          if isAged ~= 0 then
            aged[#aged + 1] = id
          end
        else
          letters[k], all = 'x', false
        end
      end
    end
    if #removed > 0 then
      call('ZREM', invisible, unpack(removed))
      call('HDEL', state, unpack(removed))
    end
    if #aged > 0 then
      call('ZREM', KEYS[10], unpack(aged))
    end
  end

  local finished, changed = {}, {}
  for _, name in ipairs(names) do
    local haul = found[name]
    if haul and haul.count == haul.size then
      bytes, finished[#finished + 1] = bytes - parse('<d', haul.manifest, 25), name
    elseif haul and haul.count > 0 then
      local tickets, sizes, numbers, total = {}, {}, {}, 0
      for i = 0, haul.size - 1 do
        local from = HAUL_HEAD + TICKET * i
        if not haul.crossed[from] then
          local n = #tickets + 1
          tickets[n] = sub(haul.manifest, from + 1, from + TICKET)
          from = HAUL_HEAD + TICKET * haul.size + 4 * i
          sizes[n] = sub(haul.manifest, from + 1, from + 4)
          from = HAUL_HEAD + (TICKET + 4) * haul.size + i
          numbers[n] = sub(haul.manifest, from + 1, from + 1)
          total = total + parse('<I4', sizes[n])
        end
      end
      bytes = bytes - parse('<d', haul.manifest, 25) + total
      changed[#changed + 1] = name
      changed[#changed + 1] = sub(haul.manifest, 1, 24) .. pack('<d', total)
        .. concat(tickets) .. concat(sizes) .. concat(numbers)
    end
    hauled = hauled - (haul and haul.count or 0)
  end
  if #finished > 0 then
    call('HDEL', manifests, unpack(finished))
    call('ZREM', invisible, unpack(finished))
    hauls = hauls - #finished
  end
  if #changed > 0 then
    call('HSET', manifests, unpack(changed))
  end
  if #acked > 0 then
    call('HDEL', data, unpack(acked))
  end
  settled = all and '' or concat(letters)
end
