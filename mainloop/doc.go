// Package mainloop runs agents: programs that answer the requests of a mailbox with a
// language model.
//
// # A loop
//
// A [MainLoop] is a worker.Loop whose handler is made of three parts: a function
// that makes a [Prompt] from a [Request], an [Adapter] that calls a model, and the
// reply, a [Result], which goes to the reply address of the request:
//
//	loop := mainloop.New(requests, model, func(ctx context.Context, run *mainloop.Run[Question]) (*mainloop.Prompt, error) {
//		return mainloop.Ask(run.Request.Body.Text), nil
//	}, &mainloop.Options[Question, Answer]{})
//	err := loop.Run(ctx)
//
// It is a worker.Member and has what worker loops have: lease extension, draining, dead
// letters, health. The reply is sent before the request is acked. If the reply cannot
// be sent, the model is not called again.
//
// # Turns
//
// If the prompt has tools, the model may call them. The loop runs them and sends the
// results to the model, turn after turn, until it answers. The [Session] of the run
// records all of that for evaluators and hooks.
//
// # Bounds
//
// A request can carry a [Budget] of tokens and a [Deadline], which override those of
// the loop's options. The tokens of all turns count. An exceeded budget or deadline is
// final: a retry would not help.
//
// # Clients
//
// A [Client] sends requests and waits for their results, in a reply store. The
// older form uses two mailboxes, one for requests and one for results that all clients
// share: Options.Responses for the loop, [Await] for the clients.
//
// Package mainloop/openai has an Adapter for servers that speak the protocol of
// OpenAI's chat completions.
package mainloop
