#!lua
-- Changes a schedule and sends its messages, in one step.
--
-- KEYS: the shard
-- ARGV: queue, floor, fence, session, turn, name, revision, following, through, what,
--   definition, dues; for each message id, record, extra
-- Result: head; a code; the schedule as it is now, or nothing
-- Uses: head session time shard entry bundle order priority strict retention ttl dead advance unique dedup send advance_first
--
-- revision is the one that the schedule must have, 0 for none, and following the next one.
-- through is in milliseconds, 0 leaves it. what: d the definition replaces the one that
-- is stored, k it is kept, r the schedule is removed. dues are the due times of the
-- messages, as doubles. The codes: 1 done, 0 not done, f the messages do not fit, m there are
-- too many schedules.
--
-- A schedule is a field of meta, which goes with the queue in every version: its name after
-- "r:". It packs the revision, through when, the number of runs, for each run due, time and
-- id, and the definition. The field schedules counts them. Because it does not say
-- "allow-oom", a server that is out of memory refuses it; reading and removing run a copy that says so.

local SCHEDULE, RUN, MESSAGES, MAX_SCHEDULES, MAX_RUNS = '<ddB', '<ddc26', 13, 1000, 10
local SCHEDULE_BYTES, RUN_BYTES = 17, 42

local function fit()
  local n, size = 0, 0
  for i = MESSAGES, #ARGV, 3 do
    n, size = n + 1, size + parse('<I4', ARGV[i + 1], 17)
  end
  return n == 0 or not (shard.maxMessages > 0 and engine.counted() + n > shard.maxMessages)
    and not (shard.maxBytes > 0 and shard.bytes + size > shard.maxBytes)
end

-- runs returns the last of the runs, with those of this firing, and their number.
local function runs(text, n)
  local at = math.floor(shard.wall / 1000)
  for i = MESSAGES, #ARGV, 3 do
    text = text .. pack(RUN, parse('<d', ARGV[12], (i - MESSAGES) / 3 * 8 + 1), at, ARGV[i])
    n = n + 1
  end
  local left = math.min(n, MAX_RUNS)
  return sub(text, (n - left) * RUN_BYTES + 1), left
end

local function fire(field)
  local stored = call('HGET', shard.meta, field)
  local revision, through, n, past, definition = 0, 0, 0, '', ''
  if stored then
    revision, through, n = parse(SCHEDULE, stored)
    past = sub(stored, SCHEDULE_BYTES + 1, SCHEDULE_BYTES + n * RUN_BYTES)
    definition = sub(stored, SCHEDULE_BYTES + n * RUN_BYTES + 1)
  end
  if revision ~= tonumber(ARGV[7]) or tonumber(ARGV[9]) > shard.wall / 1000 then
    return '0'
  elseif ARGV[10] == 'r' then
    call('HDEL', shard.meta, field)
    call('HINCRBY', shard.meta, 'schedules', -1)
    return '1'
  elseif not stored and tonumber(call('HGET', shard.meta, 'schedules') or 0) >= MAX_SCHEDULES then
    return 'm'
  elseif not fit() then
    return 'f'
  end
  engine.send(MESSAGES, MESSAGES, #ARGV + 1)
  if not stored then
    call('HINCRBY', shard.meta, 'schedules', 1)
  end
  past, n = runs(past, n)
  call('HSET', shard.meta, field, pack(SCHEDULE, tonumber(ARGV[8]), math.max(through, tonumber(ARGV[9])), n)
    .. past .. (ARGV[10] == 'd' and ARGV[11] or definition))
  return '1'
end

local field = 'r:' .. ARGV[6]
local code = repeated and sub(repeated, 2) or fire(field)
return engine.finish('s' .. code, code, call('HGET', shard.meta, field) or '')
