// Package membox is the memory backend: durable for as long as the process
// lives, exact, ordered, and as fast as a mutex allows.
//
// It is the queue engine with nothing behind it. Use it in tests, in programs
// whose queues need not survive them, and as the yardstick for the other
// backends: it has every ability they can have (groups, dedup, dead letters,
// looking without touching, per-queue configuration).
//
// All queues of one [Backend] with the same name are the same queue. Times are
// measured on the monotonic clock. A receiver that waits is woken by the send,
// the settled delivery or the deadline that gives it something to do; a queue
// without waiting receivers runs no timer and no goroutine.
package membox
