-- The fast path of settling: acks only. Acked messages are removed from their bundles,
-- and have no entries.
local names, found
if simple and PLAIN > SETTLE then
  names, found = {}, {}
  for i = SETTLE + 1, PLAIN - 1, 2 do
    local name = sub(ARGV[i], 2, 10)
    if found[name] == nil then
      names[#names + 1], found[name] = name, false
    end
  end
  for i, packed in ipairs(call('HMGET', bundles, unpack(names))) do
    found[names[i]] = packed and { packed = packed, size = (#packed - BUNDLE_HEAD) / BUNDLE_CELL, acked = {}, count = 0 }
    if keyed and not packed then
      simple = false -- a message with an entry may hold a unique key, see unique.lua
    end
  end
end

if simple and PLAIN > SETTLE then
  local acked, alone, nonces, aged, codes, all = {}, {}, {}, {}, {}, true -- codes: a number is a place in alone
  for i = SETTLE, PLAIN - 1, 2 do
    local ids, how = ARGV[i], ARGV[i + 1]
    local bundle = found[sub(how, 2, 10)]
    local at = 0 -- where the message is in its bundle, from 1 on
    for k = 1, #ids / ID do
      local id, number = sub(ids, ID * (k - 1) + 1, ID * k), byte(how, 10 + k)
      if bundle then
        local numbers = BUNDLE_HEAD + (LOCATOR + 4) * bundle.size
        at = at + 1 -- mostly
        if byte(bundle.packed, numbers + at) ~= number then
          at = (string.find(bundle.packed, char(number), numbers + 1, true) or numbers) - numbers
        end
        local from = BUNDLE_HEAD + LOCATOR * (at - 1)
        if at > 0 and not bundle.acked[at] and sub(bundle.packed, from + 1, from + ID) == id then
          bundle.acked[at], bundle.count = true, bundle.count + 1
          acked[#acked + 1], codes[#codes + 1] = id, 's'
        else
          codes[#codes + 1], all = 'x', false
        end
      else
        alone[#alone + 1], codes[#codes + 1] = id, #alone + 1
        nonces[#alone] = parse('<d', how, 2) + BUNDLE_MAX * byte(how, 10) + number
      end
    end
  end

  if #alone > 0 then
    local entries, removed, seen = call('HMGET', state, unpack(alone)), {}, {}
    for k, n in ipairs(codes) do
      if type(n) == 'number' then
        local id, entry = alone[n], entries[n]
        if entry and #entry >= ENTRY_BYTES and not seen[id] and (parse('<d', entry, 25)) == nonces[n] then
          local size, isAged = parse('<dd', entry, 49)
          bytes, codes[k], seen[id] = bytes - size, 's', true
          acked[#acked + 1], removed[#removed + 1] = id, id
          if isAged ~= 0 then
            aged[#aged + 1] = id
          end
        else
          codes[k], all = 'x', false
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
    local bundle = found[name]
    if bundle and bundle.count == bundle.size then
      bytes, finished[#finished + 1] = bytes - parse('<d', bundle.packed, 25), name
    elseif bundle and bundle.count > 0 then
      local locators, sizes, numbers, total = {}, {}, {}, 0
      for i = 0, bundle.size - 1 do
        local from = BUNDLE_HEAD + LOCATOR * i
        if not bundle.acked[i + 1] then
          local n = #locators + 1
          locators[n] = sub(bundle.packed, from + 1, from + LOCATOR)
          from = BUNDLE_HEAD + LOCATOR * bundle.size + 4 * i
          sizes[n] = sub(bundle.packed, from + 1, from + 4)
          from = BUNDLE_HEAD + (LOCATOR + 4) * bundle.size + i
          numbers[n] = sub(bundle.packed, from + 1, from + 1)
          total = total + parse('<I4', sizes[n])
        end
      end
      bytes = bytes - parse('<d', bundle.packed, 25) + total
      changed[#changed + 1] = name
      changed[#changed + 1] = sub(bundle.packed, 1, 24) .. pack('<d', total)
        .. concat(locators) .. concat(sizes) .. concat(numbers)
    end
    bundledCount = bundledCount - (bundle and bundle.count or 0)
  end
  if #finished > 0 then
    call('HDEL', bundles, unpack(finished))
    call('ZREM', invisible, unpack(finished))
    bundleCount = bundleCount - #finished
  end
  if #changed > 0 then
    call('HSET', bundles, unpack(changed))
  end
  if #acked > 0 then
    call('HDEL', data, unpack(acked))
  end
  settled = all and '' or concat(codes)
end
