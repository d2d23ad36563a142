// Package mainloop runs agents: programs that answer requests by asking a
// language model, on the requests of a mailbox.
//
// # A loop
//
// A [MainLoop] is a worker.Loop whose handler is made of three parts: a function
// that makes a [Prompt] of a [Request], an [Adapter] that asks a model, and the
// reply, a [Result], which goes to where the request asks for it:
//
//	loop := mainloop.New(requests, model, func(ctx context.Context, run *mainloop.Run[Question]) (*mainloop.Prompt, error) {
//		return mainloop.Ask(run.Request.Body.Text), nil
//	}, &mainloop.Options[Question, Answer]{})
//	err := loop.Run(ctx)
//
// It is a member for a worker.Group and has all that worker loops have: leases
// that are extended, draining, dead letters, health. The reply is sent before the
// request is acked. A model that has answered is not asked again because the
// reply could not be sent.
//
// # Turns
//
// If the prompt has tools, the model may ask for them. The loop calls them and
// tells the model what they returned, turn after turn, until it answers. All of
// that is kept in the [Session] of the run, where evaluators and hooks find it.
//
// # Bounds
//
// A request can carry a [Budget] of tokens and a [Deadline], which beat those of
// the loop's options. The tokens of all turns count. A budget that is used up and
// a deadline that has passed are final: trying again would not help.
//
// # Clients
//
// A [Client] sends requests and waits for their results, in a reply store. The
// older form with two mailboxes, one for requests and one for results that all
// clients share, is there too: Options.Responses for the loop, [Await] for the
// clients.
//
// Package mainloop/openai has an Adapter for servers that speak the protocol of
// OpenAI's chat completions.
package mainloop
