// Package broker is what the daemon does, whatever protocol it is asked in:
// authorise, bound, stamp, call the backend, count.
//
// A surface makes a [Caller] of the token and the origin of a request or a
// connection, and calls its methods. It never sees the backend, and it decides
// nothing: what is refused here is refused on every wire, and for the same
// reason. Package wireerr turns the errors into those of a protocol.
//
// # Queues
//
// A queue is a queue of the backend. Tokens that were minted for a tenant see
// that tenant's queues only, under the names the tenant gave them; see
// [Broker.BackendName] for the names that the backend has them by.
//
// Sending to a queue and receiving from it make it, unless the caller says
// otherwise ([Caller.Existing]); everything else answers ErrNotFound for a queue
// that is not there.
//
// # Receipts
//
// Receipts are sealed: they carry the backend's receipt, which token took the
// delivery and when, and a MAC under a key that all daemons with the same key
// ring have. A receipt that was changed, or is of another queue, is
// ErrReceiptExpired like one that is too old: it names no delivery.
//
// # Deliveries that do not arrive
//
// A delivery counts when the backend leases the message: only the backend can
// count, and it cannot know whether the client got it. When a surface notices that
// a client is gone which it has leased messages for, it gives them back with an
// extension by 0 and not with a nack: they are ready at once, at their own places,
// and nobody is said to have failed. The count stays, so that a message which kills
// whoever receives it still becomes a dead letter.
//
// # Envelopes
//
// What is sent is sealed in the sense of package envelope, and what is received
// is verified. The seal travels with the message in one attribute that nobody
// outside sees or can set. A message that is not what was sent becomes a dead
// letter with reason integrity. Messages that programs put into the backend
// without the daemon have no seal, and get one when they are handed out.
//
// # Bounds
//
// [Limits] are checked before anything is done. What exceeds them is ErrFull
// with a time to come back. While the daemon drains, writes are refused first
// and receives later; settling is possible to the end.
package broker
