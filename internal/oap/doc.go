// Package oap is the wire format of the fast road to mailboxd: OAP/1 frames,
// and inside them the binary payloads of the Mailbox protocol.
//
// It has no I/O and keeps no state. The Append functions write to the end of a
// slice, the Parse functions read a whole slice, and what they hand out points
// into it: a caller that keeps something copies it first. Input is anybody's
// word, so every length is compared with what is there before memory is taken
// for it, and a payload that has one byte too many, or says the same thing in
// two ways, is refused. The document docs/oap.md describes every byte.
package oap
