// Package mailboxtest has doubles for tests of programs that use mailboxes.
//
// The doubles are backends, not mailboxes: a test opens a real
// mailbox.Mailbox on one of them, so that encoding, limits, settling and
// everything else behave as in production, and only the backend is a double.
//
//   - [Null] drops messages and delivers nothing, for tests that do not look at
//     messages.
//   - [Collector] remembers the messages that were sent, for tests that check
//     them.
//   - [Faults] is a working backend that fails on command: errors, lost answers,
//     delays, expired receipts, messages with earlier deliveries. It does the
//     same for reply stores ([Faults.Replies]).
//   - [Resolver] records which reply addresses were resolved, collects the
//     replies, and fails on command.
//   - [NewImmediateReply] and [NewNeverReply] are reply stores, for tests of clients
//     without a worker.
//
// For a backend without faults, use package membox. All of them use the virtual
// time of a testing/synctest bubble.
package mailboxtest
