// Package pgbox is the backend on PostgreSQL: any number of processes on one database, the
// same contract as every other backend, no extension and no superuser.
//
// Every operation is one call of a function in the database, and one transaction. The
// functions are the state machine: what happens to messages is decided in sql, with the names
// of the files of internal/engine. They use the clock of the server. Sends and settling wait
// for the disk; receives do not, because a lease that is lost is a redelivery.
//
// # Tables
//
// Bodies are written once (table body). The state of a message is a small row of table
// message, with one partial index for each way to wait. Numbers come from a sequence, and
// counts, of queues with bounds only, are rows that are read newest first, so a transaction that is held
// open in the same database does not make claims slower: a process remembers up to which place and time it has
// seen everything taken, and begins to look there. Now and then it looks at everything, because a crash of the
// server can bring leases back that were not on the disk.
//
// # Locks
//
// Transactions on a shard take turns by an advisory lock that ends with the transaction.
// Plain sends take only the lock of the tail, so that places become visible in order. Acks in
// queues without strict groups take no lock but those of the rows. Nothing depends on the
// session but prepared statements, which are given up where they get lost, so pgbouncer may
// stand between, in transaction mode.
//
// Calls on queues without bounds, retention, groups, priorities and times to live go short ways
// (send_plain, take and ack_sorted), which call the other functions where those are needed.
//
// Where to look: call.go (calls, repeating, errors), gather.go (goroutines that share a call),
// send.go, receive.go, long_poll.go, settle.go, dead_letters.go, peek.go, edit.go and schedule.go (the operations),
// tx.go (operations that are part of a transaction of the caller), notify.go (what wakes receives of other processes), migrate.go (the schema).
package pgbox
