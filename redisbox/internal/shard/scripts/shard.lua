-- The slow path. The state of the shard is in the table shard, and all functions are in
-- the table engine: functions that share two tables are created much faster than
-- functions that share fifty variables, and they are created in every call. The tables
-- deadLetters and bundles have older names as keys, see keys.go.

local shard = {
  meta = meta, pending = pending, invisible = invisible, delayed = delayed, data = data, state = state,
  returned = KEYS[3], dead = KEYS[8], deadLetters = KEYS[9], ages = KEYS[10], groups = KEYS[11], eligible = KEYS[12],
  out = KEYS[13], outbox = KEYS[14], dedup = KEYS[15], windows = KEYS[16], sessions = KEYS[17], arrivals = KEYS[18],
  bundles = KEYS[19], turns = KEYS[20], served = KEYS[21], ends = KEYS[22], levels = KEYS[23], holders = KEYS[24],

  version = version, strict = strict ~= 0, maxDeliveries = maxDeliveries, maxMessages = maxMessages,
  maxBytes = maxBytes, maxInFlight = maxInFlight, maxDead = maxDead, maxHold = maxHold, window = window,
  dedupMax = dedupMax, readyAge = readyAge, readyCount = readyCount, deadAge = deadAge, deadCount = deadCount,
  forwards = forwards ~= 0, paused = paused, prioritized = prioritized, keyed = keyed, schema = schema,
  drops = #known[2] > 120, -- there is one number more if expired messages are dropped

  clock = clock, offset = offset, term = term, last = last, death = death, bytes = bytes, next = next,
  wantsReady = wantsReady, wantsDue = wantsDue, hasReturned = hasReturned, bundleCount = bundleCount, bundledCount = bundledCount,
  nextBefore = nextBefore, session = session,
  now = now, wall = wall,
  at = now, -- the time of the current event; earlier than now while advancing
  budget = 500, -- how many due events one call may handle

  entries = {}, changed = {}, removed = {}, -- entries that were read, changed and removed
  endings = {}, otherEndings = {}, -- see engine.ended
  heads = {}, -- the first messages of priorities, see priority.lua; false if there is none
  -- The groups that the batch being received has taken from, in order, and the
  -- place before which it may take from each.
  taken = {}, takenOrder = {}, idle = {},
}
local engine = {}

-- ready counts the messages that are ready.
function engine.ready()
  if shard.strict then
    return call('ZCARD', shard.groups)
  end
  return call('LLEN', shard.pending) + call('ZCARD', shard.returned)
    + (shard.prioritized and call('ZCARD', shard.levels) or 0)
end

-- inFlight counts the leased messages. A bundle is one member of invisible for several
-- messages.
function engine.inFlight()
  return call('ZCARD', shard.invisible) - shard.bundleCount + shard.bundledCount
end

-- available is an upper bound on how many messages a receive could take.
function engine.available()
  if shard.paused then
    return 0
  end
  local n = shard.strict and call('ZCARD', shard.eligible) or engine.ready()
  if shard.maxInFlight > 0 then
    n = math.min(n, shard.maxInFlight - engine.inFlight())
  end
  return n
end

-- announce wakes waiting receivers: it publishes the number of ready messages, or an
-- earlier deadline, to the processes that asked for it. It must not fail: the changes
-- are made.
function engine.announce()
  local channel = sub(shard.meta, 1, -5) .. 'wake'
  local n = shard.wantsReady ~= 0 and engine.available() or 0
  if n > 0 then
    shard.wantsReady = 0
    redis.pcall('SPUBLISH', channel, 'ready ' .. n)
  elseif shard.wantsDue ~= 0 and shard.next < shard.nextBefore then
    if redis.pcall('SPUBLISH', channel, format('due %.0f', shard.next)) == 0 then
      shard.wantsDue = 0 -- no process is subscribed
    end
  end
end

-- ended records that a message was dead-lettered (kind d), that a dead letter was
-- removed (r), or that an expired message was dropped (x). Answers have it behind their
-- head: the first endings one by one, the others as a number for each kind and reason.
local ENDING, MAX_ENDINGS, MAX_FAILURE = '<c1ddBc0Bc0Hc0', 32, 200

function engine.ended(kind, id, reason, deliveries, failure)
  if #shard.endings < MAX_ENDINGS then
    failure = sub(failure, 1, MAX_FAILURE)
    shard.endings[#shard.endings + 1] = pack(ENDING, kind, 1, deliveries, #id, id, #reason, reason, #failure, failure)
  else
    shard.otherEndings[kind .. reason] = (shard.otherEndings[kind .. reason] or 0) + 1
  end
end

-- finish writes all changes and returns the answer. memory is what a repeated call
-- needs, and begins with "s"; nil means the answer itself.
function engine.finish(memory, ...)
  engine.forgetIdle()
  engine.flush()
  engine.announce()
  local toForward = shard.stalled and -1 or shard.forwards and call('ZCARD', shard.outbox) or 0
  local endings = shard.endings
  for what, n in pairs(shard.otherEndings) do
    endings[#endings + 1] = pack(ENDING, sub(what, 1, 1), n, 0, 0, '', #what - 1, sub(what, 2), 0, '')
  end
  local head = pack('<dddddd', shard.now, shard.wall, shard.next, shard.version, shard.term, toForward)
  local answer = { 'ok', head .. concat(endings), ... }
  shard.prioritized = shard.prioritized and call('ZCARD', shard.levels) > 0
  shard.keyed = shard.keyed and call('HLEN', shard.holders) > 0
  local schema = SCHEMA + (shard.paused and 1 or 0) + (shard.prioritized and PRIORITIZED - SCHEMA or 0)
    + (shard.keyed and KEYED - SCHEMA or 0)
  if schema ~= shard.schema then
    call('HSET', shard.meta, 'schema', schema)
  end
  local after = pack(STATE, shard.now, shard.offset, shard.term, shard.last, shard.death, shard.bytes, shard.next,
    shard.wantsReady, shard.wantsDue, shard.hasReturned, shard.bundleCount, shard.bundledCount)
  if shard.session ~= '' then
    call('HSET', shard.meta, 'state', after, 's:' .. session, pack('<d', turn) .. (memory or cmsgpack.pack(answer)))
  else
    call('HSET', shard.meta, 'state', after)
  end
  return answer
end
