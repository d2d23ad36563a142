#!lua flags=allow-oom
-- Removes all messages that are not dead, all dead letters, or all dedup keys.
--
-- KEYS: the shard
-- ARGV: queue, floor, fence, session, turn, which
-- Result: head; how many were removed
-- Uses: head session time shard entry bundle order priority strict retention ttl dead advance advance_first

local removals
if ARGV[6] == 'dead' then
  removals = call('ZCARD', shard.dead)
  call('UNLINK', shard.dead, shard.deadLetters, shard.outbox)
  engine.madeRoom()
elseif ARGV[6] == 'dedup' then
  removals = call('HLEN', shard.dedup)
  call('UNLINK', shard.dedup, shard.windows)
else
  removals = engine.counted()
  call('UNLINK', shard.pending, shard.returned, shard.invisible, shard.delayed, shard.data, shard.state,
    shard.ages, shard.groups, shard.eligible, shard.out, shard.bundles, shard.turns, shard.served, shard.ends, shard.levels,
    shard.holders)
  shard.bytes, shard.next, shard.hasReturned, shard.bundleCount, shard.bundledCount = 0, INFINITE, 0, 0, 0
  call('ZREMRANGEBYSCORE', shard.arrivals, 'inf', 'inf') -- moves that have stalled
  shard.entries, shard.changed, shard.removed, shard.heads, shard.lives = {}, {}, {}, {}, 0
  local _, deadDue = engine.deadRetention()
  engine.note(deadDue)
end
return engine.finish(nil, removals)
