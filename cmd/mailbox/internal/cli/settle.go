package cli

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
)

// deliveryFlags name a delivery more precisely than the id of its message.
type deliveryFlags struct{ queue, receipt string }

func (f *deliveryFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.queue, "queue", "", "queue of the message; needed with --receipt, and if the daemon was restarted since")
	flags.StringVar(&f.receipt, "receipt", "", "receipt of the delivery; needed if it was received with another token")
}

const settleHelp = "The message is found by its id if this token received it and still holds it. Otherwise name the delivery\n" +
	"with --queue and --receipt, which mailbox recv --json prints."

func (s *shell) ackCommand() *cobra.Command {
	var d deliveryFlags
	c := &cobra.Command{
		Use: "ack ID...", Short: "Remove received messages permanently", Long: "Remove received messages permanently.\n\n" + settleHelp,
		Example: "mailbox ack 01K9ZQ4T1V6N8F7M2C3B5D0XAW",
		Args:    wants(1, -1),
		RunE: s.run(func(ctx context.Context, args []string) error {
			return s.settle(ctx, "ack", &d, args, map[string]any{})
		}),
	}
	d.register(c.Flags())
	return c
}

func (s *shell) nackCommand() *cobra.Command {
	var d deliveryFlags
	var cause, reason string
	var delay time.Duration
	var dead, release, putBack bool
	c := &cobra.Command{
		Use: "nack ID...", Short: "Return received messages to the queue",
		Long: "Return received messages to the tail of the queue, to be delivered again, or dead-letter them with --dead.\n" +
			"With --release, which keeps their places, and --put-back the delivery does not count.\n\n" + settleHelp,
		Example: "mailbox nack 01K9ZQ4T1V6N8F7M2C3B5D0XAW --cause 'no such customer' --delay 1m",
		Args:    wants(1, -1),
	}
	d.register(c.Flags())
	c.Flags().StringVarP(&cause, "cause", "c", "", "what went wrong; stored with the message")
	c.Flags().DurationVarP(&delay, "delay", "d", 0, "how long to wait before the next delivery; the default grows with each delivery")
	c.Flags().BoolVar(&dead, "dead", false, "dead-letter them at once")
	c.Flags().BoolVar(&release, "release", false, "return them to their places, uncounted, at once or after --delay")
	c.Flags().BoolVar(&putBack, "put-back", false, "return them to the tail, uncounted, at once or after --delay")
	c.Flags().StringVar(&reason, "reason", string(driver.ReasonOperator), "reason of the dead letters: fatal, parse or operator")
	c.RunE = s.run(func(ctx context.Context, args []string) error {
		switch {
		case dead && (release || putBack), release && putBack:
			return usageError("--dead, --release and --put-back exclude each other; leave one")
		case dead && c.Flags().Changed("delay"):
			return usageError("--delay and --dead exclude each other; leave one out")
		case !dead && c.Flags().Changed("reason"):
			return usageError("--reason goes with --dead")
		case !driver.Reason(reason).Valid():
			return usageError("--reason: invalid value %.60q; want fatal, parse or operator", reason)
		case dead:
			return s.settle(ctx, "bury", &d, args, map[string]any{"reason": reason, "error": cause})
		}
		body := map[string]any{"reason": cause}
		switch {
		case release:
			body["mode"] = modeRelease
		case putBack:
			body["mode"] = modePutBack
		}
		if c.Flags().Changed("delay") {
			body["delay_ms"] = delay.Milliseconds()
		}
		return s.settle(ctx, "nack", &d, args, body)
	})
	return c
}

func (s *shell) extendCommand() *cobra.Command {
	var d deliveryFlags
	var visibility time.Duration
	c := &cobra.Command{
		Use: "extend ID...", Short: "Extend the leases of received messages", Long: "Extend the leases of received messages, or end them with --visibility 0s.\n\n" + settleHelp,
		Example: "mailbox extend 01K9ZQ4T1V6N8F7M2C3B5D0XAW --visibility 5m",
		Args:    wants(1, -1),
		RunE: s.run(func(ctx context.Context, args []string) error {
			return s.settle(ctx, "extend", &d, args, map[string]any{"visibility_ms": visibility.Milliseconds()})
		}),
	}
	d.register(c.Flags())
	c.Flags().DurationVar(&visibility, "visibility", 30*time.Second, "how long from now on other receivers do not get them")
	return c
}

// settledView is the outcome of a delivery in JSON.
type settledView struct {
	ID      string `json:"id"`
	Outcome string `json:"outcome"`
	// VisibilityMS is how long an extended delivery is leased from now on.
	VisibilityMS *float64 `json:"visibility_ms,omitempty"`
}

// words returns the outcome as text. A shortened extension names its duration.
func (v *settledView) words(asked any) string {
	ms, ok := asked.(int64)
	if v.VisibilityMS == nil || !ok || *v.VisibilityMS >= float64(ms) {
		return v.Outcome
	}
	granted := time.Duration(*v.VisibilityMS * float64(time.Millisecond))
	return fmt.Sprintf("%s by %v: max-hold of the queue is reached", v.Outcome, granted.Round(time.Millisecond))
}

// outcomes are those of verbs, and of the modes of a nack.
var outcomes = map[string]string{
	"ack": "acked", "nack": "nacked", "extend": "extended", "bury": "dead", modeRelease: "released", modePutBack: "put back",
}

// The modes of a nack in requests.
const (
	modeRelease = "release"
	modePutBack = "put_back"
)

// settle settles each message. It continues after a failure, and fails at the
// end.
func (s *shell) settle(ctx context.Context, verb string, d *deliveryFlags, ids []string, body map[string]any) error {
	if d.receipt != "" && (d.queue == "" || len(ids) > 1) {
		return usageError("--receipt names the delivery of one message, and needs --queue too")
	}
	connection, err := s.connect()
	if err != nil {
		return err
	}
	defer connection.close()
	if d.queue != "" {
		body["topic"] = d.queue
	}
	if d.receipt != "" {
		body["receipt"] = d.receipt
	}
	var first error
	for _, id := range ids {
		view := settledView{ID: id, Outcome: outcomes[verb]}
		if mode, ok := body["mode"].(string); ok {
			view.Outcome = outcomes[mode]
		}
		answer := struct {
			VisibilityMS **float64 `json:"visibility_ms"`
		}{&view.VisibilityMS}
		err := connection.api.call(ctx, apiRequest{path: "/v1/" + verb + "/" + url.PathEscape(id), body: body}, &answer)
		if err == nil {
			if err := s.say(view, "%s\t%s", id, view.words(body["visibility_ms"])); err != nil {
				return err
			}
			continue
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		f := explainLease(err, id)
		if first == nil {
			first = f
			continue
		}
		s.report(f)
	}
	return first
}

// adviceID says where to find ids.
const adviceID = "mailbox send and mailbox recv print ids, like 01K9ZQ4T1V6N8F7M2C3B5D0XAW"

// looksLikeID reports whether a text can be the id of a message: a ULID, or a UUID
// if the backend of the daemon is SQS.
func looksLikeID(text string) bool {
	_, err := capability.ParseTokenID(text)
	return err == nil || len(text) == 36 && strings.Count(text, "-") == 4
}

// explainLease explains why a delivery was not found.
func explainLease(err error, id string) error {
	f := explain(err)
	if f.exit == exitNotFound {
		known := *f
		if e, ok := errors.AsType[*driver.Error](err); ok && e.Field == "receipt" {
			known.sentence, known.advice = "--receipt "+e.Detail, "mailbox recv --json prints receipts"
			return &known
		}
		if !looksLikeID(id) {
			known.sentence = fmt.Sprintf("%.60q is not the id of a message", id)
			known.advice = adviceID
			return &known
		}
		known.sentence = fmt.Sprintf("this token holds no delivery of %s: it was settled, its visibility has ended, or another token received it", printable([]byte(id), 40))
		known.advice = "receive it again, or name the delivery with --queue and --receipt"
		return &known
	}
	return f
}
