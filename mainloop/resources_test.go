package mainloop_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/mainloop"
)

// A database and a session are resources that record when they are closed.
type (
	database struct{ closed *[]string }
	cursor   struct{ closed *[]string }
)

func (d database) Close() error { *d.closed = append(*d.closed, "database"); return nil }
func (c cursor) Close() error   { *c.closed = append(*c.closed, "cursor"); return errMilk }

func TestResourcesLiveAsLongAsTheirScope(t *testing.T) {
	var made, closed []string
	shared := mainloop.NewResources(nil)
	mainloop.Bind(shared, func(context.Context, *mainloop.Resources) (database, error) {
		made = append(made, "database")
		return database{&closed}, nil
	})
	tool := mainloop.Tool{Name: "look", Call: func(ctx context.Context, _ json.RawMessage) (string, error) {
		_, err := mainloop.Resource[cursor](ctx, mainloop.ResourcesOf(ctx))
		return "found", err
	}}
	model := mainloop.AdapterFunc(func(_ context.Context, p *mainloop.Prompt) (response, error) {
		if len(p.Turns) == 1 {
			return response{ToolCalls: []mainloop.ToolCall{{ID: "1", Name: "look"}, {ID: "2", Name: "look"}}}, nil
		}
		return response{Text: p.Turns[len(p.Turns)-1].Text}, nil
	})
	l := mainloop.New(nil, model, func(_ context.Context, run *run) (*mainloop.Prompt, error) {
		mainloop.Bind(run.Resources, func(ctx context.Context, r *mainloop.Resources) (cursor, error) {
			made = append(made, "cursor")
			_, err := mainloop.Resource[database](ctx, r)
			return cursor{&closed}, err
		})
		prompt := mainloop.Ask("?")
		prompt.Tools = []mainloop.Tool{tool}
		return prompt, nil
	}, &options{Resources: shared})
	for range 2 {
		got, _, err := l.Execute(t.Context(), request{Body: "?"})
		if err != nil || got.Output != "found" {
			t.Fatalf("the result is %+v, %v", got, err)
		}
	}
	if want := []string{"cursor", "database", "cursor"}; !slices.Equal(made, want) {
		t.Errorf("made were %v, want %v", made, want)
	}
	if want := []string{"cursor", "cursor"}; !slices.Equal(closed, want) {
		t.Errorf("closed were %v, want %v", closed, want)
	}
	if err := errors.Join(shared.Close(), shared.Close()); err != nil || closed[2] != "database" {
		t.Errorf("closed were %v, %v", closed, err)
	}
	if _, err := mainloop.Resource[database](t.Context(), shared); !errors.Is(err, mailbox.ErrClosed) {
		t.Errorf("a resource that is closed is %v", err)
	}
}

func TestUnboundResourceIsNotFound(t *testing.T) {
	r := mainloop.NewResources(mainloop.NewResources(nil))
	if _, err := mainloop.Resource[database](t.Context(), r); !errors.Is(err, mailbox.ErrNotFound) {
		t.Errorf("error is %v", err)
	}
	tries := 0
	mainloop.Bind(r, func(context.Context, *mainloop.Resources) (database, error) { tries++; return database{}, errMilk })
	for range 2 {
		if _, err := mainloop.Resource[database](t.Context(), r); !errors.Is(err, errMilk) {
			t.Errorf("error is %v", err)
		}
	}
	if tries != 1 {
		t.Errorf("it was made %d times", tries)
	}
}
