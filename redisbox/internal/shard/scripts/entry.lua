-- An entry is the state of a message since it was sent. A message that has only been
-- sent has none, unless it was delayed or its group is strict.
--
-- After the fields there is a byte, unless it is 0: how often the message was given back
-- uncounted since its last delivery that counted (releases), 32 if first is the time of the
-- latest delivery (started), and 64 if that was leased again under its receipt (again).
-- Versions before it ignore the byte, and drop it when they write the entry. After the byte, which
-- is there then, a message with a time to live has that (ttl) and the server's time when it is over
-- (ends); see ttl.lua. After these, which are there then, a message has its priority and when its
-- age for that began (since), if it has either; since is 0 unless a nack has delayed the message, see priority.lua.
-- After these, which are there then, a message with a unique key has the digest of that (unique), and a byte:
-- 1 if it holds the key (held), and 2 if it was replaced (replaced). The record of a message that was
-- replaced is that of the last send, so the id of that follows (sentAs), and the time and the
-- group of the first record (origin); see unique.lua.

local ENTRY = '<ddddddddddBc0Bc0Hc0Hc0'

function engine.encode(e)
  local marks, rest = e.releases + (e.started and 32 or 0) + (e.again and 64 or 0), ''
  if e.priority > 0 or e.since > 0 or e.unique ~= '' then
    rest = pack('<ddBd', e.ttl, e.ends, e.priority, e.since)
  elseif e.ttl > 0 then
    rest = pack('<dd', e.ttl, e.ends)
  end
  if e.unique ~= '' then
    rest = rest .. e.unique .. char((e.held and 1 or 0) + (e.replaced and 2 or 0)) .. e.sentAs .. e.origin
  end
  return pack(ENTRY, e.place, e.seq, e.deliveries, e.nonce, e.first, e.hold, e.size, e.aged, e.redrives, e.deadAt,
    #e.group, e.group, #e.reason, e.reason, #e.failure, e.failure, #e.kind, e.kind)
    .. ((marks > 0 or rest ~= '') and char(marks) or '') .. rest
end

function engine.fresh(id, seq, size)
  return {
    id = id, place = seq, seq = seq, deliveries = 0, nonce = 0, first = 0, hold = 0, size = size,
    aged = 0, redrives = 0, deadAt = 0, group = '', reason = '', failure = '', kind = '',
    releases = 0, ttl = 0, ends = 0, priority = 0, since = 0, unique = '', sentAs = '', origin = '',
  }
end

function engine.decode(id, raw)
  local ok, place, seq, deliveries, nonce, first, hold, size, aged, redrives, deadAt, group, reason, failure, kind, rest =
    pcall(parse, ENTRY, raw)
  if not ok then
    return nil
  end
  local marks, ttl, ends, priority, since = byte(raw, rest) or 0, 0, 0, 0, 0
  local unique, uses = '', 0
  if #raw >= rest + 16 then
    ttl, ends = parse('<dd', raw, rest + 1)
  end
  if #raw >= rest + 25 then
    priority, since = parse('<Bd', raw, rest + 17)
    priority = math.min(priority, 9) -- also if it is damaged
  end
  if #raw >= rest + 42 then
    unique, uses = sub(raw, rest + 26, rest + 41), byte(raw, rest + 42)
  end
  return {
    id = id, place = place, seq = seq, deliveries = deliveries, nonce = nonce, first = first, hold = hold, size = size,
    aged = aged, redrives = redrives, deadAt = deadAt, group = group, reason = reason, failure = failure, kind = kind,
    releases = marks % 32, started = marks % 64 >= 32, again = marks >= 64,
    ttl = ttl, ends = ends, priority = priority, since = since,
    unique = unique, held = uses % 2 == 1, replaced = uses >= 2,
    sentAs = sub(raw, rest + 43, rest + 42 + ID), origin = sub(raw, rest + 43 + ID),
  }
end

-- hasReturned reports whether a message that waits was delivered before.
function engine.hasReturned(e) return e.deliveries > 0 or e.releases > 0 end
