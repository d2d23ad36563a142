// Package sqsapi is the surface of the daemon for clients of Amazon SQS: all actions,
// in both protocols, with the errors and limits of AWS. Package sqswire has the wire
// protocols, package sigv4 the signatures, and package keepalive fast connections; this
// package implements the actions.
//
// A queue of SQS is a queue of the broker with the same name. Its configuration has the
// settings that the engine implements: groups in order, dead letters, retention, the
// dedup window, the number in flight. All other settings of SQS (default times, tags,
// policies, move tasks) are JSON in the annotation of the configuration, so that they are
// as durable as the messages. Queues that were created by other surfaces can be used too,
// with the defaults of SQS.
//
// The broker authorises requests, for the token whose credentials signed them; this
// package makes no such decisions. It reads settings of queues on behalf of the daemon,
// and only for callers that are allowed some operation on the queue.
//
// Settings are cached for a second, so changes by other daemons on the same backend
// become visible with that delay. Whether a queue exists is never cached for sending,
// receiving or settling.
package sqsapi
