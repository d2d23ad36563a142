// Package reply adds requests with answers to mailboxes.
//
// # Clients
//
// A [Client] sends a request and gets a [Future] for its answer:
//
//	client := reply.NewClient[Question, Answer](questions, store, nil)
//	future, err := client.Send(ctx, question)
//	…
//	answer, err := future.Wait(ctx)
//
// or both at once, with [Client.Call]. The answer goes to a slot in a reply
// store, which is written once: [NewMemory] within a process, others across
// machines. A caller that knows the id of a future can read its answer, so a client
// that crashes while it waits can continue after a restart ([Client.Future]). A slot
// lives for a bounded time, and waiting ends with it.
//
// # Workers
//
// A worker receives requests from a mailbox with the same store
// (mailbox.Options.Replies). [Handle] makes a handler from a function that returns
// the answer: it serves, replies, and then settles, in this order, so that after a
// crash at any point there is one answer and no request. A request that is
// delivered again although it was answered is acked and not served again. An error
// of the function reaches the client as an error, with its text and its kind: see
// mailbox.Failure.
//
// # Reply mailboxes
//
// A request can also name a mailbox as its reply address (mailbox.WithReplyTo),
// which a resolver finds for the worker (mailbox.Options.Resolver). Such a
// mailbox takes any number of replies from any number of workers. Read it as a
// mailbox of [Result], with the codec that [Results] makes, because replies can
// be errors too. [Await] returns the reply to one request, also from a mailbox that
// many clients share; [Collect] returns the replies to many requests; a worker can
// answer with a [Stream], whose parts [Parts] reads in order.
//
// # Concurrency
//
// Everything here may be used by many goroutines at once, unless it says
// otherwise. Nothing starts a goroutine, except that [Handle] uses one for a request that
// is served for longer than a second, to learn whether it was cancelled.
package reply
