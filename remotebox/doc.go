// Package remotebox is the backend for queues in mailboxd. It uses
// OAP/1, over TCP, TLS or a unix socket.
//
//	backend := remotebox.New([]string{"127.0.0.1:9411"}, token, nil)
//	defer backend.Close()
//	orders, err := mailbox.Open[Order](ctx, backend, "orders", nil)
//
// One connection carries everything. Requests of all goroutines run
// concurrently, each is answered when it is done, and requests made at the same time
// are written together; a single request does not wait for others.
//
// # When the connection is lost
//
// A Backend connects when it is first used and whenever it has to, to the next
// of its addresses, with growing pauses. Operations wait for that as long as
// Options.Patience says and then fail with ErrUnavailable.
//
// Requests that were running when the connection was lost are repeated, if that cannot do
// anything twice. Requests that change something are numbered, and a daemon
// remembers the outcomes of a client's latest ones: as long as the client comes
// back to the same process, a repeated send is the same send, and a repeated ack
// gets the answer of the first. If it comes to another process, for example
// after a restart, it repeats what is safe to repeat: reads,
// acks, nacks and extensions, receives, and sends in which every message has a
// dedup key. For the rest the outcome is unknown, and the error is
// ErrUnavailable. No send is ever repeated on a guess. If another process finds
// no delivery to settle, the outcome is unknown too: the first one may have
// settled it.
//
// A receive whose answer was lost may have leased messages; they come back when
// their visibility is over.
package remotebox
