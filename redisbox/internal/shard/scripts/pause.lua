#!lua flags=allow-oom
-- Pauses or resumes the shard. A paused shard leases no messages, and has another schema, see
-- schema.go.
--
-- KEYS: the shard
-- ARGV: queue, floor, fence, session, turn, paused
-- Result: head
-- Uses: head session time shard entry bundle order priority strict retention ttl dead advance advance_first
--
-- paused: 1 pauses, 0 resumes. A process that waits for messages has asked for an
-- announcement, and gets it when the shard is resumed.

shard.paused = ARGV[6] == '1'
return engine.finish()
