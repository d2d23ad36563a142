// Package history records the calls of concurrent clients of a queue, and checks afterwards that
// their results can be explained: no message is lost, invented, held twice or delivered out of order.
//
// A [Recorder] wraps queues, [Observe] reads what is left in the end, and [Check] compares both with
// the rules of docs/semantics.md.
package history
