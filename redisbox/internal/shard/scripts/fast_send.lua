-- The fast path of sending. The messages of one call have the same seq; their ids,
-- which grow, tell them apart.
if simple and SPECIAL > PLAIN then
  last = last < now and now or last + 1
  local place, tail, sent, codes = pack('<d', last), {}, ARGV, nil
  local from, to, size = PLAIN, SPECIAL - 1, tonumber(ARGV[9])
  if maxMessages == 0 and maxBytes == 0 then
    for i = PLAIN, SPECIAL - 1, 2 do
      tail[#tail + 1] = ARGV[i] .. place
    end
  else -- not all of them may fit
    local count = call('LLEN', pending) + call('ZCARD', KEYS[3]) + call('ZCARD', delayed)
      + call('ZCARD', invisible) - bundleCount + bundledCount + (prioritized and call('ZCARD', KEYS[23]) or 0)
    sent, codes, from, size = {}, {}, 1, 0
    for i = PLAIN, SPECIAL - 1, 2 do
      local body = parse('<I4', ARGV[i + 1], 17)
      local fits = not (maxMessages > 0 and count + #tail >= maxMessages) and not (maxBytes > 0 and bytes + size + body > maxBytes)
      codes[#codes + 1] = fits and 's' or 'f'
      if fits then
        sent[#sent + 1], tail[#tail + 1], size = ARGV[i], ARGV[i] .. place, size + body
        sent[#sent + 1] = ARGV[i + 1]
      end
    end
    to = #sent
  end
  if #tail > 0 then
    call('HSET', data, unpack(sent, from, to))
    call('RPUSH', pending, unpack(tail))
    bytes = bytes + size
    if readyAge > 0 and last + readyAge < next then
      next = last + readyAge
    end
  end
  added = codes and #tail < #codes and concat(codes) or ''
end
