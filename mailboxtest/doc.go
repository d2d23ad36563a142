// Package mailboxtest has doubles for tests of programs that use mailboxes.
//
// The doubles are backends, not mailboxes: a test opens a real
// mailbox.Mailbox on one of them, so that encoding, limits, settling and
// everything else behave as in production, and only the far end is pretended.
//
//   - [Null] drops what is sent and delivers nothing, for code whose messages
//     do not matter to the test.
//   - [Collector] remembers what was sent, for code whose messages are what
//     the test is about.
//   - [Faults] is a working backend in which things go wrong on command:
//     errors, lost answers, delays, expired receipts, messages that were
//     delivered many times before. It does the same to reply stores
//     ([Faults.Replies]).
//   - [Resolver] takes down which reply addresses were asked for, collects
//     what is sent to them, and fails on command.
//   - [ImmediateReply] and [NeverReply] are reply stores, for clients that need
//     no worker to be tested.
//
// For a backend that simply works, use package membox. All of them keep to
// the virtual time of a testing/synctest bubble.
package mailboxtest
