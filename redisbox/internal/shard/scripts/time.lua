-- The current time, on an axis that follows the server's clock, never goes back, and
-- does not jump when another server takes over.
--
-- After GAP without a call, or if time seems to go back, it checks which server's clock
-- this is. The clocks of two servers may differ by SKEW.

local GAP, SKEW = 100000, 120000000

local time = call('TIME')
local wall = time[1] * 1000000 + time[2]
local now = wall + offset
if now < clock or now > clock + GAP then
  local server = redis.pcall('INFO', 'server')
  local run = type(server) == 'string' and string.match(server, 'run_id:(%x+)')
  if run and run ~= call('HGET', meta, 'run') then
    -- A server that was started after the last call is the old one again, or one
    -- that has loaded its files: its clock goes on. Any other, a promoted replica or a
    -- node that got this slot, may be ahead. The floor of the caller says how much time
    -- has passed at least.
    local started = wall - (string.match(server, 'uptime_in_seconds:(%d+)') - 1) * 1000000 -- at the latest
    local promoted = not string.find(call('INFO', 'replication'), 'master_replid2:0000000000')
    if promoted or started < clock - offset then
      now = now - SKEW
      term = math.max(term, fence) + 1 -- after all earlier primaries
    end
    now = math.max(now, floor)
    call('HSET', meta, 'run', run)
  elseif now < clock then
    now = floor
  end
  now = math.max(now, clock)
  offset = now - wall
end
if term < fence then
  return { 'stale' } -- the caller has seen a later primary than this one
end

-- A session registered this long ago is not used any more.
local SESSION = 3600000000

if session ~= '' and not remembered then
  for _, name in ipairs(call('ZRANGEBYSCORE', sessions, '-inf', now - SESSION, 'LIMIT', 0, 16)) do
    call('ZREM', sessions, name)
    call('HDEL', meta, 's:' .. name)
  end
  call('ZADD', sessions, now, session)
end
