// Package broker does the work of the daemon for every protocol: authorise, bound,
// seal, call the backend, count.
//
// A surface makes a [Caller] from the token and the origin of a request or a
// connection, and calls its methods. A surface never calls the backend and makes no
// decisions, so a request is refused for the same reason on every wire. Package
// wireerr maps the errors to those of a protocol.
//
// # Queues
//
// Each queue is a queue of the backend. A token of a tenant sees only the queues of
// that tenant, under the names that the tenant gave them; [Broker.BackendName]
// returns the name in the backend.
//
// Sending to a queue creates it, unless the caller is [Caller.Existing]. All other
// operations answer ErrNotFound for a missing queue.
//
// # Receipts
//
// Receipts are sealed: they carry the backend's receipt, the token that took the
// delivery, the time, and a MAC under a key of the key ring. Daemons with the same
// ring accept each other's receipts. A receipt that was changed, or is of another
// queue, names no delivery and is ErrReceiptExpired, like an old one. Daemons on a shared
// backend seal receipts as earlier versions did, which may be among them.
//
// # Deliveries that do not arrive
//
// The backend counts a delivery when it leases the message; it cannot know whether
// the client got it. When a surface notices that a client has gone away with leased
// messages, it returns them with an extension by 0, not with a nack: they are ready
// at once, at their old places, and no failure is recorded. The count stays, so that
// a message which crashes every receiver still becomes a dead letter.
//
// # Envelopes
//
// The broker seals messages when they are sent, in the sense of package envelope, and
// verifies them when they are received. The seal is stored in one attribute that
// clients can neither see nor set. A message that was changed becomes a dead letter
// with reason integrity. Messages that other programs put into the backend have no
// seal, and get one when they are delivered.
//
// # Bounds
//
// [Limits] are checked before an operation does anything. An operation that exceeds
// them is ErrFull with a RetryAfter. While the daemon drains, the broker refuses
// writes first and receives later; deliveries can be settled to the end.
package broker
