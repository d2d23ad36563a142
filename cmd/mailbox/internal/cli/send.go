package cli

import (
	"context"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/mailboxmq/mailbox/driver"
)

// maxBodyBytes bounds a body; no daemon accepts a longer one.
const maxBodyBytes = 1 << 20

// sendFlags are the flags of mailbox send.
type sendFlags struct {
	file, key, group       string
	replyTo, correlationID string
	at                     string
	attributes             []string
	delay, ttl             time.Duration
	lines, quiet, replace  bool
	unique                 string
	skip, priority         int
}

func (s *shell) sendCommand() *cobra.Command {
	var f sendFlags
	c := &cobra.Command{
		Use: "send QUEUE [BODY]", Short: "Send messages", SuggestFor: []string{"publish", "push", "put", "enqueue"},
		Long: "Send a message. The body is the argument, a file, or standard input. With --lines each line is a message.\n\n" +
			"The ids of the messages are printed, a line each.",
		Example: "mailbox send orders '{\"id\":42}' --key order-42\n" +
			"mailbox send orders --file order.json --attr source=shop --delay 30s\n" +
			"mailbox send reminders call --at 2026-12-24T18:00:00Z\n" +
			"mailbox send reindex '{\"doc\":7}' --unique doc-7 --replace --delay 10s\n" +
			"generate | mailbox send orders --lines",
		Args: wants(1, 2), ValidArgsFunction: s.completeQueue,
	}
	flags := c.Flags()
	c.RunE = s.run(func(ctx context.Context, args []string) error {
		if flags.Changed("key") && f.key == "" { // a script whose variable is not set
			return usageError("--key is empty; leave it out to send without a dedup key, or name one")
		}
		return s.send(ctx, &f, args)
	})
	flags.StringVarP(&f.file, "file", "f", "", "file with the body, or with the lines; - means standard input")
	flags.BoolVar(&f.lines, "lines", false, "send each line as a message")
	flags.IntVar(&f.skip, "skip", 0, "skip this many lines, to continue where an earlier send stopped")
	flags.StringVarP(&f.key, "key", "k", "", "dedup key: sending again with the same key is the same message; with --lines, a colon and the line's number are added")
	flags.StringVarP(&f.unique, "unique", "u", "", "unique key: while a message with it is not acked, dead or removed, sending with the same key adds none")
	flags.BoolVar(&f.replace, "replace", false, "replace the waiting message that holds the unique key, and when it is due")
	flags.StringArrayVarP(&f.attributes, "attr", "a", nil, "attribute NAME=VALUE; can be repeated")
	flags.DurationVarP(&f.delay, "delay", "d", 0, "deliver it this much later, at most 8784h (366 days)")
	flags.DurationVar(&f.ttl, "ttl", 0, "how long it can be delivered from then on, at most 8784h (366 days); without it, as long as the queue says")
	flags.IntVar(&f.priority, "priority", 0, "priority, 0 to 9; messages with a higher one are delivered first")
	flags.StringVar(&f.at, "at", "", "deliver it at this time, like 2026-01-02T15:04:05Z, or without a zone in that of this machine; at most 366 days ahead")
	flags.StringVarP(&f.group, "group", "g", "", "group: its messages keep their order")
	flags.StringVar(&f.replyTo, "reply-to", "", "address for replies")
	flags.StringVar(&f.correlationID, "correlation-id", "", "id that relates a reply to its request")
	flags.BoolVarP(&f.quiet, "quiet", "q", false, "print no ids")
	return c
}

func (s *shell) send(ctx context.Context, f *sendFlags, args []string) error {
	template, err := f.template()
	if err != nil {
		return err
	}
	switch {
	case len(args) == 2 && f.file != "":
		return usageError("the body is given twice, as an argument and with --file; leave one out")
	case len(args) == 2 && f.lines:
		return usageError("--lines reads a file or standard input; leave out the body")
	case f.lines && f.unique != "":
		return usageError("--unique names one message, and --lines sends many; leave one out")
	case f.skip != 0 && !f.lines || f.skip < 0:
		return usageError("--skip is a number of lines, and goes with --lines")
	}
	connection, err := s.connect()
	if err != nil {
		return err
	}
	m := connection.queueOpener()
	defer m.close()
	if len(args) == 2 {
		template.Body = []byte(args[1])
		return s.sendOne(ctx, m, f, args[0], template)
	}
	input, size, err := s.input(f.file)
	if err != nil {
		return err
	}
	defer func() { _ = input.Close() }()
	if f.lines {
		queue, err := m.open(ctx, args[0])
		if err != nil {
			return err
		}
		lines := lineSender{shell: s, flags: f, name: args[0], queue: queue, template: template, bar: s.progress("sending", size)}
		defer lines.bar.end()
		return lines.send(ctx, input)
	}
	if template.Body, err = io.ReadAll(io.LimitReader(input, maxBodyBytes+1)); err != nil {
		return usageError("read body: %v", err)
	}
	return s.sendOne(ctx, m, f, args[0], template)
}

// template returns a message with everything that the flags set.
func (f *sendFlags) template() (driver.Outgoing, error) {
	attributes, err := parsePairs("attr", f.attributes)
	if err != nil {
		return driver.Outgoing{}, err
	}
	at, err := parseTime("at", f.at)
	if err == nil && f.delay != 0 && !at.IsZero() {
		err = usageError("--delay and --at are both given; leave one out")
	}
	return driver.Outgoing{
		Attributes: attributes, Delay: f.delay, DeliverAt: at, TTL: f.ttl, Priority: f.priority, DedupKey: f.key, UniqueKey: f.unique, Replace: f.replace, Group: f.group, ReplyTo: f.replyTo, CorrelationID: f.correlationID,
	}, err
}

// parseTime reads the value of a flag with a time; the empty text is none.
func parseTime(flag, text string) (at time.Time, err error) {
	if text == "" {
		return at, nil
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02 15:04:05", "2006-01-02 15:04"} {
		if at, err = time.ParseInLocation(layout, text, time.Local); err == nil { //nolint:gosmopolitan // people mean their own time
			return at, nil
		}
	}
	return time.Time{}, usageError("--%s: invalid time %q; want one like 2026-01-02T15:04:05Z, or 2026-01-02T15:04 in the zone of this machine", flag, text)
}

// input opens a file, or standard input for "-" and "". size is 0 if it is not
// known.
func (s *shell) input(path string) (input io.ReadCloser, size int64, err error) {
	if path == "" || path == "-" {
		if isTerminal(s.Stdin) {
			s.note("Reading from the terminal. End with Ctrl-D.")
		}
		return io.NopCloser(s.Stdin), 0, nil
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, 0, usageError("--file: %v", err)
	}
	if info, err := file.Stat(); err == nil && info.Mode().IsRegular() {
		size = info.Size()
	}
	return file, size, nil
}

// sentView is a sent message in JSON.
type sentView struct {
	ID        string `json:"id"`
	Queue     string `json:"queue"`
	Duplicate bool   `json:"duplicate"`
	Replaced  bool   `json:"replaced,omitempty"`
}

func (s *shell) sendOne(ctx context.Context, m *queueOpener, f *sendFlags, name string, message driver.Outgoing) error {
	queue, err := m.open(ctx, name)
	if err != nil {
		return err
	}
	sent, err := queue.Send(ctx, []driver.Outgoing{message})
	if err != nil {
		return err
	}
	return s.printSent(f, name, sent)
}

func (s *shell) printSent(f *sendFlags, queue string, sent []driver.Sent) error {
	for _, one := range sent {
		if f.quiet {
			continue
		}
		mark := ""
		if one.Duplicate {
			mark = "\tduplicate"
		}
		if one.Replaced {
			mark = "\treplaced"
		}
		if err := s.say(sentView{one.ID, queue, one.Duplicate, one.Replaced}, "%s%s", one.ID, mark); err != nil {
			return err
		}
	}
	return nil
}
