-- The long way. All there is to know about the shard is in the table shard, and
-- what can be done with it in the table engine: functions that share two tables
-- are made much faster than functions that share fifty variables, and they are
-- made in every call.

local shard = {
  meta = meta, pending = pending, invisible = invisible, delayed = delayed, data = data, state = state,
  returned = KEYS[3], dead = KEYS[8], graves = KEYS[9], ages = KEYS[10], groups = KEYS[11], eligible = KEYS[12],
  out = KEYS[13], outbox = KEYS[14], dedup = KEYS[15], windows = KEYS[16], sessions = KEYS[17], arrivals = KEYS[18],
  manifests = KEYS[19], turns = KEYS[20], served = KEYS[21],

  version = version, strict = strict ~= 0, maxDeliveries = maxDeliveries, maxMessages = maxMessages,
  maxBytes = maxBytes, maxInFlight = maxInFlight, maxDead = maxDead, maxHold = maxHold, window = window,
  dedupMax = dedupMax, readyAge = readyAge, readyCount = readyCount, deadAge = deadAge, deadCount = deadCount,
  forwards = forwards ~= 0,
  drops = #known[2] > 120, -- there is one number more if what expires is dropped

  clock = clock, offset = offset, term = term, last = last, death = death, bytes = bytes, next = next,
  wantsReady = wantsReady, wantsDue = wantsDue, hasReturned = hasReturned, hauls = hauls, hauled = hauled,
  nextBefore = nextBefore, session = session,
  now = now, wall = wall,
  at = now, -- when what is being done happens; earlier than now while advancing
  budget = 500, -- how much may happen by itself in one call

  entries = {}, changed = {}, removed = {}, -- entries that were read, are to be written, and are gone
  endings = {}, otherEndings = {}, -- see engine.ended
  -- The groups that the batch being received has taken from, in order, and the
  -- place before which it may take from each.
  taken = {}, takenOrder = {},
}
local engine = {}

-- ready counts the messages that are ready.
function engine.ready()
  if shard.strict then
    return call('ZCARD', shard.groups)
  end
  return call('LLEN', shard.pending) + call('ZCARD', shard.returned)
end

-- inFlight counts the messages that are leased. A haul is one member of invisible
-- for several messages.
function engine.inFlight()
  return call('ZCARD', shard.invisible) - shard.hauls + shard.hauled
end

-- available is an upper bound on how many messages a receive could take.
function engine.available()
  local n = shard.strict and call('ZCARD', shard.eligible) or engine.ready()
  if shard.maxInFlight > 0 then
    n = math.min(n, shard.maxInFlight - engine.inFlight())
  end
  return n
end

-- announce tells those who listen that there is work, or an earlier deadline. It
-- must not fail: what was done is done.
function engine.announce()
  local channel = sub(shard.meta, 1, -5) .. 'wake'
  local n = shard.wantsReady ~= 0 and engine.available() or 0
  if n > 0 then
    shard.wantsReady = 0
    redis.pcall('SPUBLISH', channel, 'ready ' .. n)
  elseif shard.wantsDue ~= 0 and shard.next < shard.nextBefore then
    if redis.pcall('SPUBLISH', channel, format('due %.0f', shard.next)) == 0 then
      shard.wantsDue = 0 -- nobody is there
    end
  end
end

-- ended notes that a message died (kind d), that a dead letter was removed (r), or
-- that an expired message was dropped (x). Answers tell it behind their head: the
-- first endings one by one, the others as a number for each kind and reason.
local ENDING, ENDINGS_MOST, FAILURE_MOST = '<c1ddBc0Bc0Hc0', 32, 200

function engine.ended(kind, id, reason, deliveries, failure)
  if #shard.endings < ENDINGS_MOST then
    failure = sub(failure, 1, FAILURE_MOST)
    shard.endings[#shard.endings + 1] = pack(ENDING, kind, 1, deliveries, #id, id, #reason, reason, #failure, failure)
  else
    shard.otherEndings[kind .. reason] = (shard.otherEndings[kind .. reason] or 0) + 1
  end
end

-- finish writes back what has changed and returns the answer. memory is what a
-- repeated call needs, and begins with "s"; nil means the answer itself.
function engine.finish(memory, ...)
  engine.flush()
  engine.announce()
  local letters = shard.stalled and -1 or shard.forwards and call('ZCARD', shard.outbox) or 0
  local endings = shard.endings
  for what, n in pairs(shard.otherEndings) do
    endings[#endings + 1] = pack(ENDING, sub(what, 1, 1), n, 0, 0, '', #what - 1, sub(what, 2), 0, '')
  end
  local head = pack('<dddddd', shard.now, shard.wall, shard.next, shard.version, shard.term, letters)
  local answer = { 'ok', head .. concat(endings), ... }
  local after = pack(STATE, shard.now, shard.offset, shard.term, shard.last, shard.death, shard.bytes, shard.next,
    shard.wantsReady, shard.wantsDue, shard.hasReturned, shard.hauls, shard.hauled)
  if shard.session ~= '' then
    call('HSET', shard.meta, 'state', after, 's:' .. session, pack('<d', turn) .. (memory or cmsgpack.pack(answer)))
  else
    call('HSET', shard.meta, 'state', after)
  end
  return answer
end
