// Package host runs queues: shards of package engine behind locks. It adds what the
// engine leaves out: it reads the clock, wakes waiting receivers, spreads messages
// over shards, remembers dedup keys, forwards dead letters, and implements
// driver.Opener.
//
// A host keeps its messages in memory. With a [Journal] it also records every
// operation, and no caller sees a change before it is durable: an operation is staged
// in the engine, recorded, and published when the journal has committed it. membox is
// a host without a journal, diskbox a host with one.
//
// # Locks
//
// In the order in which they are taken: the backend's, that of a queue's dedup table,
// a shard's, those of the shards that dead letters are forwarded to (see forward.go),
// the journal's. A queue's list of waiters is locked last and alone. Move holds the
// backend's setup lock, so only one goroutine at a time locks two shards that do not
// forward to each other.
package host
