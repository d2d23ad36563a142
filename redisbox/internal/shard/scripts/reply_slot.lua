#!lua flags=allow-oom
-- Creates, changes, reads or removes one reply slot.
--
-- KEYS: the bucket
-- ARGV: floor, fence, session, turn, what, id, life, most, waiter, failure, kind,
--   body
-- Result: head; a code; the slot, or nothing
-- Uses: reply_bucket session time
--
-- what: c create a slot that expires after life, if there are less than most, and notify
-- waiter, if there is one, when it is not pending any more; r resolve it; a (abandon)
-- cancel it; g get it; w get it, and notify waiter when it is not pending any more; t
-- take it out, unless it is pending; d delete it. The codes: s done (for c with the wall
-- time), n not found, t taken, f full (with when to try again), and the state of a slot
-- that was written before: r, c or x.
--
-- Each waiting process is notified on a channel of its own, with the id and the slot as
-- it then is. The notice of a slot that was removed while pending is the id alone; that
-- of a large slot is the id and a zero byte, and the process fetches the slot.

local EXPIRED_TTL = 60000000 -- how long expired slots are kept
local MAX_WAITERS = 3000 * 18 -- bytes of names of processes that wait for one slot
local MAX_ANNOUNCED = 4096 -- a server cuts off a subscriber that is too far behind
local what, id, life, most, waiter = ARGV[5], ARGV[6], tonumber(ARGV[7]), tonumber(ARGV[8]), ARGV[9]

local function finish(code, slot)
  local answer = { 'ok', pack('<ddd', now, wall, term), code, slot or '' }
  local after = pack('<ddd', now, offset, term)
  if session ~= '' then
    call('HSET', meta, 'state', after, 's:' .. session, pack('<d', turn) .. cmsgpack.pack(answer))
  else
    call('HSET', meta, 'state', after)
  end
  return answer
end

-- Creating a slot also sweeps a few expired ones: more than one, so that sweeping
-- outpaces creating.
if what == 'c' then
  for _, name in ipairs(call('ZRANGEBYSCORE', ends, '-inf', now - EXPIRED_TTL, 'LIMIT', 0, 2)) do
    call('HDEL', slots, name)
    call('ZREM', ends, name)
  end
  if call('HEXISTS', slots, id) == 1 then
    return finish('t')
  end
  if call('HLEN', slots) >= most then
    local oldest = call('ZRANGE', ends, 0, 0, 'WITHSCORES')
    return finish('f', format('%.0f', oldest[1] and oldest[2] + EXPIRED_TTL - now or 0))
  end
  call('ZADD', ends, now + life, id)
  call('HSET', slots, id, pack(SLOT, 'p', now + life, wall, wall + life, 0, #waiter, waiter, 0, '', 0, ''))
  return finish('s', pack('<d', wall))
end

local slot = call('HGET', slots, id)
if not slot then
  return finish(what == 'd' and 's' or 'n')
end
local state, due, created, ending, resolved, waiters, failure, kind, position = parse(SLOT, slot)
local body = sub(slot, position)
if due <= now then
  state, failure, kind, body, resolved = 'x', '', '', '', 0
end

-- tell notifies the waiting processes. It must not fail: the changes are made.
local function tell(waiters, slot)
  slot = #slot > MAX_ANNOUNCED and '\0' or slot
  for who in string.gmatch(waiters, '%S+') do
    redis.pcall('SPUBLISH', sub(meta, 1, -5) .. who, pack('<H', #id) .. id .. slot)
  end
end

-- show packs the slot as it is, without the waiting processes.
local function show()
  return pack(SLOT, state, due - now, created, ending, resolved, 0, '', #failure, failure, #kind, kind) .. body
end

if what == 'r' or what == 'a' then
  if what == 'a' and state == 'c' then
    return finish('s')
  elseif state ~= 'p' then
    return finish(state) -- a slot is written once
  end
  state = what == 'r' and 'r' or 'c'
  if what == 'r' then
    resolved, failure, kind, body = wall, ARGV[10], ARGV[11], ARGV[12]
  end
  call('HSET', slots, id, pack(SLOT, state, due, created, ending, resolved, 0, '', #failure, failure, #kind, kind) .. body)
  tell(waiters, show())
  return finish('s')
elseif what == 'd' or (what == 't' and state ~= 'p') then
  call('HDEL', slots, id)
  call('ZREM', ends, id)
  tell(waiters, state == 'p' and '' or show())
elseif what == 'w' and state == 'p' and not string.find(waiters, waiter, 1, true) then
  waiters = sub(waiters .. ' ' .. waiter, -MAX_WAITERS) -- the first have gone, or poll
  call('HSET', slots, id, pack(SLOT, state, due, created, ending, resolved, #waiters, waiters, 0, '', 0, ''))
end
return finish('s', what ~= 'd' and show() or '')
