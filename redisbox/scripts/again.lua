-- A call that is repeated because its answer was lost gets that answer again: it
-- is what a session remembers of its latest turn, unless that is the business of
-- the script. The repeated call writes, so that a WAIT after it waits for what it
-- did the first time.

local repeated
if remembered then
  local latest = parse('<d', remembered)
  if latest > turn then
    return { 'late' }
  elseif latest == turn then
    call('HSET', meta, 's:' .. session, remembered)
    repeated = sub(remembered, 9)
    if sub(repeated, 1, 1) ~= 's' then
      return cmsgpack.unpack(repeated)
    end
  end
end
