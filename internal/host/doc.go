// Package host runs queues: shards of package engine behind locks, with
// everything around them that an engine leaves out. It keeps time, wakes the
// receivers that wait, spreads messages over shards, remembers dedup keys,
// forwards dead letters, and answers as a driver.Opener.
//
// A host keeps everything in memory. Given a [Journal] it also writes down what
// happens, and lets nobody see what is not durable: an operation is staged in
// the engine, written, and published when the journal says that it is safe.
// membox is a host without a journal, diskbox a host with one.
//
// # Locks
//
// In the order in which they are taken: the backend's, a queue's dedup table,
// a shard's, the shard of a queue that dead letters are forwarded to (such a
// queue forwards none itself), the journal's. A queue's list of waiters is
// locked last and alone. Who moves messages holds the backend's setup lock, and so
// is the only one to lock two shards that do not forward to each other.
package host
