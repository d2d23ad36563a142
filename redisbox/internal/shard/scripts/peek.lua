#!lua flags=allow-oom
-- Shows messages in one state, a page at a time, or those with the given ids.
--
-- KEYS: the shard
-- ARGV: queue, floor, fence, session, turn, which, from, skip, limit, most, brief;
--   for each message id
-- Result: head; for each message id, score, entry, sent
-- Uses: head session time shard entry bundle order priority strict retention ttl dead advance advance_first
--
-- If which is returned, delayed, invisible, dead or outbox, the page begins with the
-- skip+1st message whose score is at least from; scores are places, dues and deaths. If
-- it is pending, the page begins after the locator from, which was at the position skip;
-- the id is the locator, and the score the place. If it is groups, the page begins after
-- the member from and shows members, with their places as score, and no entries. With
-- ids, pending means ready, and the score is 0. If it is levels, the page begins after from, a
-- place and an id, and shows messages with a priority by place.
--
-- With brief, records are left out. The answer is not much longer than most.

local which, from, skip, limit, most, brief = ARGV[6], ARGV[7], ARGV[8], tonumber(ARGV[9]), tonumber(ARGV[10]), ARGV[11] == '1'
local answers, size = {}, 0

-- show adds a message, and reports whether there is room for more.
local function show(id, score)
  local entry, sent = '', ''
  if which == 'dead' or which == 'outbox' then
    local packed = call('HGET', shard.deadLetters, id) or ''
    if #packed > 4 then
      local length = parse('<I4', packed)
      entry, sent = sub(packed, 5, 4 + length), sub(packed, 5 + length)
    end
  else
    local name = sub(id, 1, ID)
    entry, sent = call('HGET', shard.state, name) or '', not brief and call('HGET', shard.data, name) or ''
  end
  if brief then
    sent = ''
  end
  local n = #answers
  answers[n + 1], answers[n + 2], answers[n + 3], answers[n + 4] = id, score, entry, sent
  size = size + #entry + #sent
  return size < most
end

-- ready reports whether a message is ready.
local function ready(id)
  return call('HEXISTS', shard.data, id) ~= 0 and not call('ZSCORE', shard.delayed, id) and not call('ZSCORE', shard.invisible, id)
end

if (which == 'invisible' or (which == 'pending' and #ARGV > 11)) and not engine.splitAllBundles() then
  return engine.again()
end
if #ARGV > 11 then
  for i = 12, #ARGV do
    local score
    if which == 'pending' or which == 'groups' then
      score = ready(ARGV[i]) and '0'
    else
      score = call('ZSCORE', shard[which], ARGV[i])
    end
    if score and not show(ARGV[i], score) then
      break
    end
  end
elseif which == 'pending' then
  local begin = tonumber(skip)
  if from ~= '' and call('LINDEX', shard.pending, begin - 1) ~= from then
    -- Messages have been taken off the head; perhaps from too, and then all before it.
    begin = (call('LPOS', shard.pending, from) or -1) + 1
  end
  for _, locator in ipairs(call('LRANGE', shard.pending, begin, begin + limit - 1)) do
    if not show(locator, format('%.0f', (parse('<d', locator, ID + 1)))) then
      break
    end
  end
elseif which == 'levels' then
  local places = {}
  for priority = 1, shard.prioritized and MAX_PRIORITY or 0 do
    for _, m in ipairs(call('ZRANGEBYLEX', shard.levels, '(' .. priority .. from, '(' .. priority .. ':', 'LIMIT', 0, limit)) do
      places[#places + 1] = sub(m, 2)
    end
  end
  table.sort(places)
  for i = 1, math.min(#places, limit) do
    if not show(sub(places[i], 17), sub(places[i], 1, 16)) then
      break
    end
  end
elseif which == 'groups' then
  for _, m in ipairs(call('ZRANGEBYLEX', shard.groups, from == '' and '-' or '(' .. from, '+', 'LIMIT', 0, limit)) do
    local n = #answers
    answers[n + 1], answers[n + 2], answers[n + 3], answers[n + 4] = m, sub(m, 17, 32), '', ''
  end
else
  local page = call('ZRANGEBYSCORE', shard[which], from, '+inf', 'WITHSCORES', 'LIMIT', skip, limit)
  for i = 1, #page, 2 do
    if not show(page[i], page[i + 1]) then
      break
    end
  end
end
return engine.finish(nil, unpack(answers))
