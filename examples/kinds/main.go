// Kinds is a worker for a queue with several kinds of messages: each kind has its own
// type, codec and handler, and a message of an unknown kind becomes a dead letter. One of
// the handlers takes long and tells how far it has come.
//
//	go run ./examples/kinds
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/worker"
)

// Email is the body of the kind "email", as JSON.
type Email struct {
	To      string `json:"to"`
	Subject string `json:"subject"`
}

// pageTime is how long a page of a report takes.
const pageTime = 100 * time.Millisecond

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// run sends three messages and handles them.
func run(ctx context.Context, out io.Writer) error {
	backend := membox.New(nil)
	defer backend.Close()
	if err := send(ctx, backend); err != nil {
		return err
	}
	mux, err := worker.NewMux(nil,
		worker.Kind("email", nil, func(_ context.Context, email *mailbox.Message[Email]) error {
			fmt.Fprintf(out, "mail to %s: %s\n", email.Body.To, email.Body.Subject)
			return nil
		}),
		worker.Kind("report", mailbox.String(), func(ctx context.Context, title *mailbox.Message[string]) error {
			const pages = 3
			for page := range pages {
				worker.SetProgress(ctx, float64(page)/pages, fmt.Sprintf("page %d of %q", page+1, title.Body))
				time.Sleep(pageTime)
			}
			return nil
		}))
	if err != nil {
		return err
	}
	jobs, err := mailbox.Open(ctx, backend, "jobs", mux.Options(nil))
	if err != nil {
		return err
	}
	defer jobs.Close()
	loop := worker.New(jobs, mux.Handle, &worker.Options[worker.Work]{Prefetch: 9, Hooks: worker.Hooks{
		Progress: func(_ context.Context, event worker.ProgressEvent) {
			fmt.Fprintf(out, "%.0f%%: %s\n", 100*event.Progress.Fraction, event.Progress.Text)
		},
	}})
	if _, err := loop.RunOnce(ctx); err != nil {
		return err
	}
	for letter, err := range jobs.DeadLetters(ctx) {
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "dead, reason %s: kind %q\n", letter.Reason, letter.Attributes[mailbox.AttributeKind])
	}
	return nil
}

// send sends as programs do that know one kind each.
func send(ctx context.Context, backend *membox.Backend) error {
	emails, err := mailbox.Open[Email](ctx, backend, "jobs", nil)
	if err != nil {
		return err
	}
	defer emails.Close()
	if _, err := emails.Send(ctx, Email{To: "ada", Subject: "your tea is ready"}, mailbox.WithKind("email")); err != nil {
		return err
	}
	texts, err := mailbox.Open(ctx, backend, "jobs", &mailbox.Options[string]{Codec: mailbox.String()})
	if err != nil {
		return err
	}
	defer texts.Close()
	for _, kind := range []string{"report", "riddle"} {
		if _, err := texts.Send(ctx, "drinks of the week", mailbox.WithKind(kind)); err != nil {
			return err
		}
	}
	return nil
}
