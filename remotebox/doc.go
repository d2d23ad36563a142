// Package remotebox is the backend for queues that live in mailboxd. It speaks
// OAP/1 frames with it, over TCP, TLS or a unix socket.
//
//	backend := remotebox.New([]string{"127.0.0.1:9411"}, token, nil)
//	defer backend.Close()
//	orders, err := mailbox.Open[Order](ctx, backend, "orders", nil)
//
// One connection carries everything. Requests of all goroutines travel side by
// side, each is answered when it is done, and what is asked at the same time
// goes out in one piece; with a single request nothing waits for company.
//
// # When the connection is lost
//
// A Backend connects when it is first used and whenever it has to, to the next
// of its addresses, with growing pauses. Operations wait for that as long as
// Options.Patience says and then fail with ErrUnavailable.
//
// What was under way when the connection was lost is repeated, if that cannot do
// anything twice. Requests that change something are numbered, and a daemon
// remembers the outcomes of a client's latest ones: as long as the client comes
// back to the same process, a repeated send is the same send, and a repeated ack
// gets the answer of the first. If it comes to another process, for example
// after a restart, it repeats what is harmless by nature: whatever only reads,
// acks, nacks and extensions, receives, and sends in which every message has a
// dedup key. For the rest the outcome is unknown, and the error is
// ErrUnavailable. No send is ever repeated on a guess.
//
// A receive whose answer was lost may have leased messages; they come back when
// their visibility is over.
package remotebox
