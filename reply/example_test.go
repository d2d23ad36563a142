package reply_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/registry"
	"github.com/mailboxmq/mailbox/reply"
)

// check ends an example that has no caller to return an error to.
func check(err error) {
	if err != nil {
		panic(err)
	}
}

func opened[V any](value V, err error) V {
	check(err)
	return value
}

type Question struct{ Text string }

type Answer struct{ Text string }

const ErrNoIdea mailbox.FailureKind = "no idea"

// answer is the work of the examples.
func answer(_ context.Context, message *mailbox.Message[Question]) (Answer, error) {
	if message.Body.Text == "why?" {
		return Answer{}, fmt.Errorf("%w about %q", ErrNoIdea, message.Body.Text)
	}
	return Answer{Text: "yes, " + message.Body.Text}, nil
}

// serve handles messages until ctx ends.
func serve(ctx context.Context, questions *mailbox.Mailbox[Question], handle func(context.Context, *mailbox.Message[Question]) error) {
	for message, err := range questions.Messages(ctx) {
		if err == nil {
			err = handle(ctx, message)
		}
		if err != nil && ctx.Err() == nil {
			fmt.Println("worker:", err) // the message comes back
		}
	}
}

// Call sends and waits. A worker's error arrives as an error with its kind.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	backend, store := membox.New(nil), reply.NewMemory(nil)
	questions := opened(mailbox.Open(ctx, backend, "questions", &mailbox.Options[Question]{Replies: store}))
	var worker sync.WaitGroup
	worker.Go(func() { serve(ctx, questions, reply.Handle(answer, nil)) })

	client := reply.NewClient[Question, Answer](questions, store, nil)
	got, err := client.Call(ctx, Question{"tea?"})
	fmt.Println(got.Text, err)
	_, err = client.Call(ctx, Question{"why?"})
	fmt.Println(errors.Is(err, ErrNoIdea), err)

	stop()
	worker.Wait()
	check(backend.Close())
	// Output:
	// yes, tea? <nil>
	// true no idea about "why?"
}

// A client that crashed while it waited finds its answer after a restart, by the id
// that it stored.
func ExampleClient_Future() {
	ctx := context.Background()
	backend, store := membox.New(nil), reply.NewMemory(nil)
	questions := opened(mailbox.Open(ctx, backend, "questions", &mailbox.Options[Question]{Replies: store}))
	defer backend.Close()

	// The client stores the id before it sends, so that it cannot get lost. Sending
	// again with the same id is safe.
	const kept = "3f9c6a51e3c24d0a"
	client := reply.NewClient[Question, Answer](questions, store, nil)
	opened(client.SendAs(ctx, kept, Question{"tea?"}))
	// The client crashes here. The worker answers all the same.
	message := opened(questions.Receive(ctx))[0]
	check(reply.Handle(answer, nil)(ctx, message))

	revived := reply.NewClient[Question, Answer](questions, store, nil)
	got, err := revived.Future(kept).Wait(ctx)
	fmt.Println(got.Text, err)
	// Output: yes, tea? <nil>
}

// A future can be polled and cancelled; the worker then skips the request.
func ExampleFuture() {
	ctx := context.Background()
	backend, store := membox.New(nil), reply.NewMemory(nil)
	questions := opened(mailbox.Open(ctx, backend, "questions", &mailbox.Options[Question]{Replies: store}))
	defer backend.Close()
	client := reply.NewClient(questions, store, &reply.Options[Answer]{TTL: time.Hour})

	future := opened(client.Send(ctx, Question{"tea?"}))
	_, ready, err := future.Poll(ctx)
	fmt.Println(ready, err)
	fmt.Println(future.Cancel(ctx))
	_, err = future.Wait(ctx)
	fmt.Println(errors.Is(err, mailbox.ErrReplyCancelled))

	message := opened(questions.Receive(ctx))[0]
	err = mailbox.Reply(ctx, message, Answer{"yes"})
	fmt.Println(errors.Is(err, mailbox.ErrReplyCancelled), message.Settled())
	// Output:
	// false <nil>
	// <nil>
	// true
	// true true
}

// The basic pattern: a request names the mailbox that its answer goes to, and
// the worker finds it in a registry.
func ExampleResults() {
	ctx := context.Background()
	backend := membox.New(nil)
	defer backend.Close()
	answers := opened(mailbox.Open(ctx, backend, "answers", &mailbox.Options[reply.Result[Answer]]{Codec: reply.Results[Answer](nil)}))
	queues := registry.New(nil)
	check(queues.Register("answers", answers.Queue()))
	questions := opened(mailbox.Open(ctx, backend, "questions", &mailbox.Options[Question]{Resolver: queues}))

	// Client
	opened(questions.Send(ctx, Question{"tea?"}, mailbox.WithReplyTo("answers")))
	// Worker
	message := opened(questions.Receive(ctx))[0]
	check(mailbox.Reply(ctx, message, Answer{"yes"}))
	check(message.Ack(ctx))
	// Client
	for _, message := range opened(answers.Receive(ctx)) {
		fmt.Println(message.Body.Value.Text, message.Body.Err)
		check(message.Ack(ctx))
	}
	// Output: yes <nil>
}

// Two mailboxes make a loop: no message names a reply address. Bodies carry an id, and a
// client that receives the response to another request puts it back.
func Example_twoMailboxes() {
	type request struct{ ID, Text string }
	type response struct{ ID, Text string }
	ctx := context.Background()
	backend := membox.New(nil)
	defer backend.Close()
	check(backend.ConfigureQueue(ctx, "responses", driver.Config{MaxDeliveries: driver.Off})) // as in ExampleAwait_sharedMailbox
	requests := opened(mailbox.Open[request](ctx, backend, "requests", nil))
	responses := opened(mailbox.Open[response](ctx, backend, "responses", nil))

	// Clients
	for _, id := range []string{"first", "second"} {
		opened(requests.Send(ctx, request{id, id + "?"}))
	}
	// Worker
	for _, message := range opened(requests.Receive(ctx, mailbox.WithMax(10))) {
		opened(responses.Send(ctx, response{message.Body.ID, "yes, " + message.Body.Text}))
		check(message.Ack(ctx))
	}
	// The second client. A loop that waits long should pause when it puts a response back.
	for found := false; !found; {
		for _, message := range opened(responses.Receive(ctx)) {
			if found = message.Body.ID == "second"; !found {
				check(message.PutBack(ctx, 0, nil))
				continue
			}
			fmt.Println(message.Body.Text)
			check(message.Ack(ctx))
		}
	}
	stats := opened(responses.Stats(ctx))
	fmt.Println(stats.Ready, "for others")
	// Output:
	// yes, second?
	// 1 for others
}

// Each client has a reply mailbox of its own. It need not be registered: the worker's
// registry opens it for the first answer.
func ExampleAwait_ownMailbox() {
	ctx, stop := context.WithCancel(context.Background())
	backend := membox.New(nil)
	queues := registry.New(&registry.Options{Fallback: backend})
	questions := opened(mailbox.Open(ctx, backend, "questions", &mailbox.Options[Question]{Resolver: queues}))
	var worker sync.WaitGroup
	worker.Go(func() { serve(ctx, questions, reply.Handle(answer, nil)) })

	for _, name := range []string{"client-1", "client-2"} {
		answers := opened(mailbox.Open(ctx, backend, name, &mailbox.Options[reply.Result[Answer]]{Codec: reply.Results[Answer](nil)}))
		sent := opened(questions.Send(ctx, Question{"tea for " + name + "?"}, mailbox.WithReplyTo(name)))
		got, err := reply.Await(ctx, answers, sent.ID)
		fmt.Println(got.Text, err)
	}
	stop()
	worker.Wait()
	check(queues.Close())
	check(backend.Close())
	// Output:
	// yes, tea for client-1? <nil>
	// yes, tea for client-2? <nil>
}

// Clients that share one reply mailbox find their answers by the id of the request,
// and put the others back. An answer that others receive often must not become a dead
// letter meanwhile, so the mailbox has no delivery limit.
func ExampleAwait_sharedMailbox() {
	ctx := context.Background()
	backend := membox.New(nil)
	defer backend.Close()
	check(backend.ConfigureQueue(ctx, "answers", driver.Config{MaxDeliveries: driver.Off}))
	queues := registry.New(&registry.Options{Fallback: backend})
	defer queues.Close()
	questions := opened(mailbox.Open(ctx, backend, "questions", &mailbox.Options[Question]{Resolver: queues}))
	answers := opened(mailbox.Open(ctx, backend, "answers", &mailbox.Options[reply.Result[Answer]]{Codec: reply.Results[Answer](nil)}))

	handle := reply.Handle(answer, nil)
	for _, id := range []string{"first", "second", "third"} {
		opened(questions.Send(ctx, Question{id + "?"}, mailbox.WithReplyTo("answers"), mailbox.WithCorrelationID(id)))
		check(handle(ctx, opened(questions.Receive(ctx))[0]))
	}
	// They wait in another order than the answers arrive.
	for _, id := range []string{"third", "first", "second"} {
		got, err := reply.Await(ctx, answers, id)
		fmt.Println(got.Text, err)
	}
	// Output:
	// yes, third? <nil>
	// yes, first? <nil>
	// yes, second? <nil>
}

// The answers to all samples of an evaluation run go to one mailbox, made for that
// run, and are collected there.
func ExampleCollect() {
	ctx, stop := context.WithCancel(context.Background())
	backend := membox.New(nil)
	queues := registry.New(&registry.Options{Fallback: backend})
	questions := opened(mailbox.Open(ctx, backend, "questions", &mailbox.Options[Question]{Resolver: queues}))
	var workers sync.WaitGroup
	for range 4 {
		workers.Go(func() { serve(ctx, questions, reply.Handle(answer, nil)) })
	}

	const run = "eval-7"
	samples := map[string]string{"sample 1": "tea?", "sample 2": "why?", "sample 3": "cake?"}
	for id, text := range samples {
		opened(questions.Send(ctx, Question{text}, mailbox.WithReplyTo(run), mailbox.WithCorrelationID(id)))
	}
	results := opened(mailbox.Open(ctx, backend, run, &mailbox.Options[reply.Result[Answer]]{Codec: reply.Results[Answer](nil)}))
	passed := 0
	for _, result := range opened(reply.Collect(ctx, results, len(samples))) {
		if result.Err != nil {
			fmt.Println(result.RequestID, "failed:", result.Err)
			continue
		}
		passed++
	}
	fmt.Println(passed, "of", len(samples), "passed")
	stop()
	workers.Wait()
	check(queues.Close())
	check(backend.Close())
	// Output:
	// sample 2 failed: no idea about "why?"
	// 2 of 3 passed
}

// An answer in parts, printed as they arrive.
func ExampleParts() {
	ctx := context.Background()
	backend := membox.New(nil)
	defer backend.Close()
	queues := registry.New(&registry.Options{Fallback: backend})
	defer queues.Close()
	questions := opened(mailbox.Open(ctx, backend, "questions", &mailbox.Options[Question]{Resolver: queues}))
	answers := opened(mailbox.Open(ctx, backend, "client-1", &mailbox.Options[reply.Result[string]]{Codec: reply.Results[string](nil)}))
	sent := opened(questions.Send(ctx, Question{"how?"}, mailbox.WithReplyTo("client-1")))

	handle := reply.HandleStream(func(ctx context.Context, _ *mailbox.Message[Question], stream *reply.Stream[string]) error {
		for _, step := range []string{"boil water", "add tea", "wait"} {
			if err := stream.Send(ctx, step); err != nil {
				return err
			}
		}
		return nil
	}, nil)
	check(handle(ctx, opened(questions.Receive(ctx))[0]))

	for part, err := range reply.Parts(ctx, answers, sent.ID, 0) {
		check(err)
		fmt.Println(part.Index, part.Value)
	}
	// Output:
	// 0 boil water
	// 1 add tea
	// 2 wait
}
