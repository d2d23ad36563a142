// Package redisbox is the backend on Redis, Valkey or a Redis Cluster: many processes,
// one server or one cluster, the same contract as every other backend.
//
// Every change of a shard is one script on the server, so it happens entirely or not at
// all. Scripts use the server's clock, kept from running backwards when another server
// takes over. A call whose answer is lost is repeated, and takes effect once. A send in
// any process wakes waiting receivers, which send no commands while they wait.
//
// Where to look: this package has the operations of queues (send.go, receive.go, settle.go,
// dedup.go and so on), receives that wait (long_poll.go, shard_watcher.go), and the reply
// store (replies.go, reply_waiters.go, reply_link.go). internal/shard makes the calls to one
// shard: batches, repeated calls, confirmation by replicas, scripts and stored bytes.
// internal/transfer brings messages to other queues. What happens to messages is decided by
// the scripts in internal/shard/scripts: settle.lua (nack, late ack, dead-letter),
// retention.lua, dedup.lua, reply_slot.lua and so on, with the names of the files of
// internal/engine.
//
// # Keys
//
// All keys of a shard share one hash tag, and so one slot of a cluster. They
// begin with the prefix of the options and {queue:NAME}, followed by:
//
//	meta       hash: the number of the schema, the queue's configuration, the
//	           shard's clock and counters, and the latest answer of each session
//	pending    list: ready messages, in the order in which they were sent
//	returned   sorted set: messages that came back to an earlier place, by place
//	levels     sorted set: ready messages with a priority, by priority and place
//	invisible  sorted set: messages in flight, by the end of their lease
//	delayed    sorted set: delayed messages, by when they become ready
//	holders    hash: the ids of the messages that hold unique keys, by digest
//	data       hash: records, which are messages as they were sent
//	state      hash: entries, which are the states of messages that have one
//	manifests  hash: bundles, which are messages that were leased together
//	dead       sorted set: dead letters, by death
//	graves     hash: dead letters, entry and record
//	ages ends groups out eligible turns served outbox dedup windows sessions arrivals
//	           for retention, times to live, strict groups, moves to other queues and dedup
//
// Reply slots are spread over 16 buckets, whose keys begin with the prefix and
// {replies.N}:
//
//	meta       hash: the bucket's clock, and the latest answer of each session
//	slots      hash: slots, with the waiting processes and their answers
//	ends       sorted set: slots, by when they expire
//	sessions   sorted set: sessions, by when they began
//
// Each script begins with a comment that says which keys and arguments it takes and what
// it answers. Its words are those of internal/engine; a bundle is up to 16 messages that
// one call has leased, see bundle.lua.
//
// # What survives
//
// Traits.Durability says what the server's settings promise. With Options.Replicas an
// operation is confirmed only when that many replicas have it. Behind sentinels ask for
// all replicas: the promoted replica may be another than the one that confirmed.
// docs/redis.md has the settings and permissions that a server needs, and the results of
// the failover tests.
//
// # The client
//
// The caller owns the client, so that one can serve many purposes. Its own pings are the
// only commands sent while receivers wait: one a second and connection, unless
// ClientOption.Dialer.KeepAlive says otherwise; half a minute is a good value.
package redisbox
