-- An entry is the state of a message since it was sent. A message that has only been
-- sent has none, unless it was delayed or its group is strict.

local ENTRY = '<ddddddddddBc0Bc0Hc0Hc0'

function engine.encode(e)
  return pack(ENTRY, e.place, e.seq, e.deliveries, e.nonce, e.first, e.hold, e.size, e.aged, e.redrives, e.deadAt,
    #e.group, e.group, #e.reason, e.reason, #e.failure, e.failure, #e.kind, e.kind)
end

function engine.fresh(id, seq, size)
  return {
    id = id, place = seq, seq = seq, deliveries = 0, nonce = 0, first = 0, hold = 0, size = size,
    aged = 0, redrives = 0, deadAt = 0, group = '', reason = '', failure = '', kind = '',
  }
end

function engine.decode(id, raw)
  local ok, place, seq, deliveries, nonce, first, hold, size, aged, redrives, deadAt, group, reason, failure, kind =
    pcall(parse, ENTRY, raw)
  if not ok then
    return nil
  end
  return {
    id = id, place = place, seq = seq, deliveries = deliveries, nonce = nonce, first = first, hold = hold, size = size,
    aged = aged, redrives = redrives, deadAt = deadAt, group = group, reason = reason, failure = failure, kind = kind,
  }
end
