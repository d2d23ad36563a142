package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/internal/checkup"
)

// healthView is the health of a daemon in JSON.
type healthView struct {
	Status  string   `json:"status"` // "alive", or "ready" with --ready
	Version string   `json:"version,omitempty"`
	Missing []string `json:"missing,omitempty"`
}

func (s *shell) healthCommand() *cobra.Command {
	ready := false
	c := &cobra.Command{
		Use: "health", Short: "Check whether the daemon answers, for health checks",
		Long: "Ask the daemon whether it is alive, or with --ready whether it is ready for work. No token is needed. The exit code is 0 if it\n" +
			"is, 1 if it is not ready, and 3 if no daemon answers.",
		Args: wants(0, 0),
		RunE: s.run(func(ctx context.Context, _ []string) error {
			e, err := s.endpoint()
			if err != nil {
				return err
			}
			api := newAPI(e, capability.Token{})
			defer api.close()
			return s.health(ctx, api, ready)
		}),
	}
	c.Flags().BoolVar(&ready, "ready", false, "ask whether it is ready for work")
	return c
}

// health checks the daemon. It is an error if the daemon is not alive, or not ready.
func (s *shell) health(ctx context.Context, api *api, ready bool) error {
	path, status := "/healthz", "alive"
	if ready {
		path, status = "/readyz", "ready"
	}
	found, err := api.get(ctx, path, capability.Token{})
	if err != nil {
		return err
	}
	v := healthView{Status: status}
	if err := json.Unmarshal(found.body, &v); err != nil || found.status != http.StatusOK && len(v.Missing) == 0 {
		return notMailboxd(api.endpoint, found.status, found.body)
	}
	v.Status = status
	if found.status != http.StatusOK {
		return &failure{
			exit: exitFailed, code: "not_ready", sentence: fmt.Sprintf("the daemon at %s is not ready: %s", api.endpoint.shown, strings.Join(v.Missing, ", ")),
			advice: checkup.Advice(v.Missing[0]),
		}
	}
	return s.say(v, "%s", status)
}
