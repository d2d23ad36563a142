package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/mailboxmq/mailbox/internal/audit"
)

func (s *shell) auditCommand() *cobra.Command {
	var since, queue string
	var limit int
	c := &cobra.Command{
		Use: "audit", Short: "Show what was changed, when, and with which token",
		Long: "Show what was changed through a daemon, oldest first: settings of queues, deletions, purges, redrives, tokens minted\n" +
			"and revoked, keys, backups and reloads, with the id of the token, the result and the number of messages. The log is\n" +
			"bounded. Daemons on one Redis or PostgreSQL have it together, and the table says which of them recorded a change. The token must be the operator's, or name the operation audit.",
		Example: "mailbox audit --since 1h\nmailbox audit --queue orders --json",
		Args:    wants(0, 0),
		RunE: s.withAPI(func(ctx context.Context, a *api, _ []string) error {
			body := map[string]any{"queue": queue, "limit": limit}
			if since != "" {
				at, err := parsePast(since, time.Now())
				if err != nil {
					return err
				}
				body["since"] = at.UTC().Format(time.RFC3339Nano)
			}
			return s.printAudit(ctx, a, body)
		}),
	}
	c.Flags().StringVar(&since, "since", "", "only changes since then: a duration like 1h, or a time like 2026-12-31T00:00:00Z")
	c.Flags().StringVar(&queue, "queue", "", "only changes of this queue")
	c.Flags().IntVarP(&limit, "limit", "n", 0, "only this many of the latest records; 0 means all")
	return c
}

// parsePast reads a time, or a duration before now.
func parsePast(text string, now time.Time) (time.Time, error) {
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return at, usageError("--since: invalid value %.60q; want a duration like 1h, or a time like 2026-12-31T00:00:00Z", text)
	}
	return at, nil
}

func (s *shell) printAudit(ctx context.Context, a *api, body any) error {
	type line struct {
		audit.Record
		Damaged int `json:"damaged"`
	}
	t := table{header: []string{"AT", "OPERATION", "QUEUE", "COUNT", "SUBJECT", "TENANT", "TOKEN", "RESULT", "DAEMON"}}
	fleet := false
	for v, err := range list[line](ctx, a, apiRequest{path: "/v1/audit", body: body}) {
		switch {
		case err != nil:
			return err
		case v.Damaged > 0:
			s.tell("mailbox: %d records of the audit log are damaged and not shown\n", v.Damaged)
		case s.global.json:
			if err := s.object(v.Record); err != nil {
				return err
			}
		default:
			t.add(stamp(&v.At), v.Operation, printable([]byte(v.Queue), bodyWidth), plainNumber(v.Count), v.Subject, v.Tenant, v.TokenID, v.Result, v.Daemon)
			fleet = fleet || v.Daemon != ""
		}
	}
	if !fleet { // the daemon has the log alone
		t.header = t.header[:len(t.header)-1]
		for i, row := range t.rows {
			t.rows[i] = row[:len(row)-1]
		}
	}
	if s.global.json || len(t.rows) == 0 {
		return nil
	}
	return t.write(s.Stdout)
}
