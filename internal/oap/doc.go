// Package oap is the wire format of the OAP/1 protocol of mailboxd: frames,
// and inside them the binary payloads of the Mailbox protocol.
//
// It does no I/O and has no state. The Append functions append to a
// slice, the Parse functions read a whole slice, and their results point
// into it: a caller that keeps a result copies it first. Input is
// untrusted, so every length is compared with the input before memory is allocated
// for it, and a payload with trailing bytes, or with a value in a
// second encoding, is refused. The document docs/oap.md describes every byte.
package oap
