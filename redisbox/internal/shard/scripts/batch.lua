#!lua
-- Performs the operations of many callers in one step: settles deliveries, sends
-- messages, and leases messages, in this order.
--
-- KEYS: the shard, reply slots
-- ARGV: queue, floor, fence, session, turn, settles, plain, special, size, nonce,
--   most, others, slots, answers, prefix; for each slot slot, life, limit, waiter, term;
--   for each answer slot, failure, kind, body, term; for each settlement ids, how; for each plain message id,
--   record; for each special message id, record, extra; for each kind of request
--   number, max, bytes, visibility, waits
-- Result: head; results; locators; for each message leased, in the order of the
--   requests, sent if there are locators, and otherwise id, entry, sent
-- Uses: head session time shard entry bundle order priority strict retention ttl dead advance unique dedup settle send receive advance_first
--
-- settles, plain and special are counts, and size is the bytes of the bodies of the
-- plain messages. All messages of a call are plain, or all are special. number is how
-- many requests of a kind there are. For the arguments and result codes of the
-- operations see settle.lua, send.lua and receive.lua. results packs how many more
-- messages could be received now; a code for each delivery, or nothing if all are
-- settled; a code for each message, or nothing if all are sent; for each request how
-- many messages it got and why it got none; the details of the codes of messages; and a
-- code for each answer, see reply_slot.lua.
-- locators are those of the messages leased, if none was delivered before, and after
-- them a digit for each message if slots were read: 1 if its slot is pending.
--
-- slots is the number of reply slots to create for the messages that are sent, and answers
-- that of slots to resolve for requests that are acked. Both are written on the fast path;
-- the status apart says that nothing was done, and that they have to be written first.
-- prefix is what the ids of slots begin with that messages in this queue name without it.
--
-- Because it does not say "allow-oom", a server that is out of memory refuses it; a
-- call that sends no messages runs a copy that says so.

local SLOTS = 16 -- where the first slot to create is in ARGV; those to resolve follow
local SETTLE = SLOTS + 5 * (ARGV[13] + ARGV[14])
local SLOT_KEYS = 24 -- how many keys the shard has
local PLAIN = SETTLE + 2 * ARGV[6]
local SPECIAL = PLAIN + 2 * ARGV[7]
local RECEIVE = SPECIAL + 3 * ARGV[8]
local NONCE, MOST = ARGV[10], tonumber(ARGV[11])
local ENTRY_BYTES = 86 -- minimal length of an entry, see entry.lua
local NUMBERS = '\0\1\2\3\4\5\6\7\8\9\10\11\12\13\14\15' -- in a bundle
local bundles = KEYS[19]

local settled, added, counts -- the answers of the fast path
local resolved = '' -- the codes of reply slots
local answers, ids, left, taken = { '', '', '', '' }, {}, 0, 0

local simple = strict == 0 and readyCount == 0 and now < next and not repeated and RECEIVE == SPECIAL
for i = SETTLE + 1, PLAIN - 1, 2 do
  simple = simple and byte(ARGV[i]) == 97 -- a
end
local demand, visibility = 0, ARGV[RECEIVE + 3]
for i = RECEIVE, #ARGV, 5 do
  demand = demand + ARGV[i] * ARGV[i + 1]
  simple = simple and ARGV[i + 3] == visibility and visibility ~= '0' and not paused
end

-- Most calls find no due event, no strict groups and only plain messages; then a few
-- commands suffice: the fast path. It sets fast to its answer, or to nothing if it
-- cannot continue; it has undone its changes then. It creates no functions and no large
-- tables, because that takes longer than all the commands.
local fast, memory

-- The fast path: fast_slots fast_settle fast_send fast_receive fast_finish

-- A repeated call returns the same results, and of its leases those that are still the
-- latest.
if repeated then
  local settledBytes, addedBytes, countsBytes, position = parse('<HHH', repeated, 2)
  local old = sub(repeated, position + settledBytes + addedBytes, position + settledBytes + addedBytes + countsBytes - 1)
  local total = 0
  for i = 1, countsBytes, 3 do
    total = total + byte(old, i) + 256 * byte(old, i + 1)
  end
  for i = 0, total - 1, BUNDLE_MAX do
    engine.splitBundle(NONCE .. char(i / BUNDLE_MAX))
  end
  local n, first = 0, #repeated + 1 - ID * total
  counts, answers = '', {}
  for i = 1, countsBytes, 3 do
    local got = 0
    for _ = 1, byte(old, i) + 256 * byte(old, i + 1) do
      local id = sub(repeated, first + ID * n, first + ID * (n + 1) - 1)
      local e, sent = engine.get(id), call('HGET', shard.data, id)
      if sent and e.nonce == parse('<d', NONCE) + n then
        engine.show(answers, id, engine.encode(e), sent)
        got = got + 1
      end
      n = n + 1
    end
    counts = counts .. char(got % 256, math.floor(got / 256), byte(old, i + 2))
  end
  local results = pack('<HHH', settledBytes, addedBytes, countsBytes)
    .. sub(repeated, position, position + settledBytes + addedBytes - 1) .. counts
    .. sub(repeated, position + settledBytes + addedBytes + countsBytes, first - 1)
  return engine.finish(repeated, pack('<d', 0) .. results, '', unpack(answers))
end

-- Keys that have ended make room first; very many of them in more than one call.
if not simple and RECEIVE > PLAIN and engine.forgetKeys(shard.budget) and call('HLEN', shard.dedup) >= shard.dedupMax then
  return engine.again()
end

local more = ''
if not settled then
  settled = engine.settle(SETTLE, PLAIN - 1)
end
if not added then
  added, more = engine.send(PLAIN, SPECIAL, RECEIVE)
end
engine.advance()
left, counts, answers, ids = engine.receive(RECEIVE, parse('<d', NONCE), MOST, ARGV[12] == '1')
local results = pack('<HHHc0c0c0', #settled, #added, #counts, settled, added, counts) .. more .. resolved
return engine.finish('s' .. results .. concat(ids), pack('<d', left) .. results, '', unpack(answers))
