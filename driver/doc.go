// Package driver is the seam between Mailbox and what stores the messages.
//
// Programs use package mailbox; only authors of backends, and the daemon,
// need this one. A backend is an [Opener] that opens [Queue] values by name.
// Every queue sends, receives, settles and counts. Dead letters, peeking, moving
// and the like are abilities: [Traits] names those a queue has, production code
// and the conformance suite both read it, and a queue embeds [Unsupported] for
// the others. An opener that manages queues implements [Admin]. A backend
// refuses what it cannot do with [ErrUnsupported]; it never ignores an option.
//
// # States
//
// A message is in exactly one of four states, and these four words are used
// everywhere, in code, documents, metrics and wire formats:
//
//	        Send                      Receive
//	         │                           │
//	delay ┌──┴──┐ no delay               ▼
//	      ▼     ▼            ┌──────► in flight ──Ack──► gone
//	  delayed──►ready────────┘           │
//	      ▲  due  ▲                      ├─ deadline passes: ready, at its old place
//	      │       └──────────────────────┤
//	      └──────────────────────────────┼─ Nack: at the tail, at once or after a delay
//	                                     │
//	              ready ◄──Redrive── dead ◄── too many deliveries, a bad body, …
//
// # Order
//
// Every message has a place, a number that only grows. It gets one when it is
// sent and a new one, at the tail, when it is nacked or redriven. Delay and
// visibility say when a message may be taken, never where it stands: a delayed
// message that comes due, and one whose lease ran out, are taken from the
// place they always had. In a queue with strict groups a nack keeps the place
// too, and a message that was delivered and not settled blocks those of its group
// that are behind it.
//
// # Concurrency, contexts, ownership
//
// All methods may be called from many goroutines at once. A method that can
// block takes a context first; when the context ends it returns the context's
// own error, unwrapped, and has either done the whole operation or none of it.
// Drivers classify errors and do not retry; callers decide.
//
// What is passed in, slices of arguments, bodies and maps alike, belongs to the
// caller again when the call returns, whatever it returned. What is handed out
// is shared with the backend and must not be changed. Callers keep batches
// within Traits.MaxBatch; a backend may refuse a longer one with ErrTooLarge.
package driver
