// Package sqsapi is the surface of the daemon that clients of Amazon SQS speak to:
// all actions, in both protocols, with the errors and limits of AWS. The wire is in
// package sqswire and signatures are in package sigv4; here is what the actions do.
//
// A queue of SQS is a topic of the broker with the same name. What the engine can
// do is set in its configuration: groups in order, dead letters, retention, the
// window of duplicates, the number in flight. Everything else that SQS keeps of a
// queue (default times, tags, policies, move tasks) is JSON in the configuration's
// annotation, so that it is as durable as the messages. Topics that were made in
// another way are queues too, with the defaults of SQS.
//
// What is asked is authorised by the broker, for the token whose credentials signed
// the request; this package decides nothing about that. It reads settings of queues
// on behalf of the daemon, and only for callers who may do anything with the queue.
//
// Settings are remembered for a second, so that changes by other daemons on the
// same backend are seen that late. Whether a queue is there is never remembered for
// sending, receiving or settling.
package sqsapi
