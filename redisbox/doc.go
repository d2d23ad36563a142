// Package redisbox is the backend on Redis, Valkey or a Redis Cluster: many
// processes, one server or one cluster, the same contract as every other
// backend.
//
// Every change of a shard is one script on the server, so it happens entirely or
// not at all, and it is timed by the server's clock, kept from running backwards
// when another server takes over. A call whose answer is lost is repeated, and
// does nothing twice. Receivers that wait are woken by the send, in whatever
// process it was; while they wait, nothing is asked.
//
// # Keys
//
// All keys of a shard share one hash tag, and so one slot of a cluster. They
// begin with the prefix of the options and {queue:NAME}, followed by:
//
//	meta       hash: the number of the schema, the queue's configuration, the
//	           shard's clock and counters, and the latest answer of each caller
//	pending    list: what is ready, in the order in which it was sent
//	returned   sorted set: what came back to an earlier place, by place
//	invisible  sorted set: what is in flight, by the end of its lease
//	delayed    sorted set: what waits for a time, by that time
//	data       hash: messages as they were sent
//	state      hash: what has become of them since, where there is anything to tell
//	manifests  hash: messages that were leased together and are in flight
//	dead       sorted set: dead letters, by death
//	graves     hash: dead letters, whole
//	ages groups out eligible turns served outbox dedup windows sessions arrivals
//	           what retention, strict groups, moving to other queues and dedup need
//
// Reply slots are spread over 16 buckets, whose keys begin with the prefix and
// {replies.N}:
//
//	meta       hash: the bucket's clock, and the latest answer of each caller
//	slots      hash: slots, with who waits for them and their answers
//	ends       sorted set: slots, by the end of their time
//	sessions   sorted set: callers, by when they came
//
// The scripts are in the folder of that name, each with a comment that says what
// it is given and what it answers. Their words are those of internal/engine.
//
// # What survives
//
// What your Redis survives: Traits.Durability says what the server promises by
// its settings. With Options.Replicas an operation is confirmed only when that
// many replicas have it. Behind sentinels ask for all replicas: which of them
// is promoted is not up to the one that confirmed. docs/redis.md has the settings
// and permissions that a server should give, and what was shown of failovers.
//
// # The client
//
// The client is the caller's, so that one can serve many purposes. Its own pings
// are the only thing that is sent while everybody waits: once a second and
// connection unless ClientOption.Dialer.KeepAlive says otherwise; half a minute is
// a good value.
package redisbox
