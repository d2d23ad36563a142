package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"
)

func (s *shell) requestsCommand() *cobra.Command {
	c := parent("requests", "See requests that wait for an answer in a reply slot, and give them up", s.requestsList(), s.requestsShow(), s.requestsCancel())
	c.Aliases = []string{"request"}
	return c
}

// slotName names a reply slot in requests.
type slotName struct {
	Slot string `json:"slot"`
}

// A slotAnswer is a reply slot in the HTTP API.
type slotAnswer struct {
	Slot       string     `json:"slot"`
	State      string     `json:"state"`
	Payload    []byte     `json:"payload_b64"`
	Error      string     `json:"error"`
	ErrorKind  string     `json:"error_kind"`
	CreatedAt  *time.Time `json:"created_at"`
	ExpiresAt  *time.Time `json:"expires_at"`
	ResolvedAt *time.Time `json:"resolved_at"`
}

// A requestView is a request and its slot in JSON. Its fields are stable.
type requestView struct {
	Slot       string     `json:"slot"`
	State      string     `json:"state"`
	Body       *string    `json:"body,omitempty"`
	BodyB64    []byte     `json:"body_b64,omitempty"`
	Error      string     `json:"error,omitempty"`
	ErrorKind  string     `json:"error_kind,omitempty"`
	CreatedAt  *time.Time `json:"created_at,omitempty"`
	ExpiresAt  *time.Time `json:"expires_at,omitempty"`
	ResolvedAt *time.Time `json:"resolved_at,omitempty"`
}

func (a *slotAnswer) view() requestView {
	v := requestView{
		Slot: a.Slot, State: a.State, Error: a.Error, ErrorKind: a.ErrorKind,
		CreatedAt: a.CreatedAt, ExpiresAt: a.ExpiresAt, ResolvedAt: a.ResolvedAt,
	}
	if len(a.Payload) > 0 {
		var m messageView
		m.setBody(a.Payload)
		v.Body, v.BodyB64 = m.Body, m.BodyB64
	}
	return v
}

func (s *shell) requestsList() *cobra.Command {
	return &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List the reply slots of requests",
		Long:    "List the reply slots of requests, those that expire first at the top. A slot is pending until its request is answered or given up.",
		Example: "mailbox requests ls", Args: wants(0, 0),
		RunE: s.withAPI(func(ctx context.Context, a *api, _ []string) error {
			t := table{header: []string{"SLOT", "STATE", "CREATED", "EXPIRES"}}
			for slot, err := range list[slotAnswer](ctx, a, apiRequest{path: "/v1/replies/list", body: struct{}{}}) {
				if err != nil {
					return err
				}
				if s.global.json {
					if err := s.object(slot.view()); err != nil {
						return err
					}
					continue
				}
				t.add(slot.Slot, slot.State, stamp(slot.CreatedAt), stamp(slot.ExpiresAt))
			}
			if len(t.rows) == 0 {
				return nil
			}
			return t.write(s.Stdout)
		}),
	}
}

func (s *shell) requestsShow() *cobra.Command {
	return &cobra.Command{
		Use: "show SLOT", Short: "Show the reply slot of a request",
		Long:    "Show the reply slot of a request. The answer is shown to tokens with the operation ask.",
		Example: "mailbox requests show 3f1c", Args: wants(1, 1),
		RunE: s.withAPI(func(ctx context.Context, a *api, args []string) error {
			var slot slotAnswer
			if err := a.call(ctx, apiRequest{path: "/v1/replies/get", body: slotName{args[0]}}, &slot); err != nil {
				return err
			}
			if s.global.json {
				return s.object(slot.view())
			}
			t := table{header: []string{"SLOT", slot.Slot}}
			t.add("state", slot.State)
			t.add("created", stamp(slot.CreatedAt))
			t.add("expires", stamp(slot.ExpiresAt))
			if slot.ResolvedAt != nil {
				t.add("answered", stamp(slot.ResolvedAt))
			}
			if slot.Error != "" {
				t.add("error", printable([]byte(slot.Error), 200))
			} else if len(slot.Payload) > 0 {
				t.add("answer", printable(slot.Payload, 200))
			}
			return t.write(s.Stdout)
		}),
	}
}

func (s *shell) requestsCancel() *cobra.Command {
	return &cobra.Command{
		Use: "cancel SLOT", Short: "Give up a request: no worker starts it any more, and one that works on it is told",
		Example: "mailbox requests cancel 3f1c", Args: wants(1, 1),
		RunE: s.withAPI(func(ctx context.Context, a *api, args []string) error {
			if err := a.call(ctx, apiRequest{path: "/v1/replies/cancel", body: slotName{args[0]}}, nil); err != nil {
				return err
			}
			return s.say(requestView{Slot: args[0], State: "cancelled"}, "%s\tcancelled", printable([]byte(args[0]), 0))
		}),
	}
}
