package cli

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/backoff"
)

// recvFlags are the flags of mailbox recv.
type recvFlags struct {
	max, parallel    int
	wait, visibility time.Duration
	follow, ack      bool
	body             bool
	exec             string
	retryDelay       time.Duration
}

const (
	// followWait is how long one receive with --follow waits.
	followWait = 20 * time.Second
	recvBatch  = 32
	// settleTime is how long an ack or nack may take that is sent after
	// the command was interrupted.
	settleTime = 5 * time.Second
)

func (s *shell) recvCommand() *cobra.Command {
	var f recvFlags
	c := &cobra.Command{
		Use: "recv QUEUE", Short: "Receive messages", SuggestFor: []string{"receive", "get", "pop", "poll", "consume"},
		Long: "Receive messages: id, tab and body, a line each. They stay in the queue, invisible to other receivers for\n" +
			"--visibility, until they are acked: with --ack, by mailbox ack, or by a command of --exec that succeeds.\n\n" +
			"The command of --exec is run by the shell for each message, with the body as its standard input and\n" +
			"MAILBOX_ID, MAILBOX_QUEUE, MAILBOX_DELIVERIES, MAILBOX_GROUP, MAILBOX_REPLY_TO and MAILBOX_ATTRIBUTES (JSON)\n" +
			"in its environment. If it succeeds the message is acked; if not, it is nacked with the end of what the\n" +
			"command wrote to standard error. The lease is extended for as long as the command runs.\n\n" +
			"The exit code is 8 if there was no message, and 9 if a command of --exec failed.",
		Example: "mailbox recv orders --ack\nmailbox recv orders --follow --exec 'import-order' --parallel 4\nmailbox recv orders --max 10 --wait 5s --json",
		Args:    wants(1, 1), ValidArgsFunction: s.completeQueue,
	}
	flags := c.Flags()
	flags.IntVarP(&f.max, "max", "n", 1, "how many messages at most; with --follow there is no limit by default")
	flags.DurationVarP(&f.wait, "wait", "w", 0, "how long to wait for a message")
	flags.DurationVar(&f.visibility, "visibility", 30*time.Second, "how long other receivers do not get the messages")
	flags.BoolVarP(&f.follow, "follow", "F", false, "receive until interrupted")
	flags.BoolVar(&f.ack, "ack", false, "ack each message once it is printed")
	flags.BoolVar(&f.body, "body", false, "print the bodies only, as they are")
	flags.StringVarP(&f.exec, "exec", "x", "", "run this command for each message")
	flags.IntVar(&f.parallel, "parallel", 1, "how many commands run at once")
	flags.DurationVar(&f.retryDelay, "retry-delay", 0, "how long a message whose command failed waits; the default grows with each delivery up to 1m")
	c.RunE = s.run(func(ctx context.Context, args []string) error {
		if f.follow && !flags.Changed("max") {
			f.max = 0
		}
		if !flags.Changed("retry-delay") {
			f.retryDelay = -1
		}
		return s.recv(ctx, &f, args[0])
	})
	return c
}

func (f *recvFlags) check() error {
	switch {
	case f.max < 1 && !f.follow || f.max < 0:
		return usageError("--max: invalid value %d; want at least 1", f.max)
	case f.exec != "" && (f.ack || f.body):
		return usageError("--exec acks by the result of the command; leave out --ack and --body")
	case f.parallel < 1 || f.parallel > 1 && f.exec == "":
		return usageError("--parallel is a number of commands, and goes with --exec")
	case f.retryDelay >= 0 && f.exec == "":
		return usageError("--retry-delay goes with --exec")
	case f.wait < 0 || f.visibility < 0:
		return usageError("--wait and --visibility cannot be negative")
	}
	return nil
}

func (s *shell) recv(ctx context.Context, f *recvFlags, name string) error {
	if err := f.check(); err != nil {
		return err
	}
	connection, err := s.connect()
	if err != nil {
		return err
	}
	m := connection.queueOpener()
	defer m.close()
	queue, err := m.open(ctx, name)
	if err != nil {
		return err
	}
	r := &receiver{shell: s, flags: f, name: name, queue: queue}
	if f.exec != "" {
		return r.execAll(ctx)
	}
	err = r.printAll(ctx)
	switch {
	case err != nil && f.follow && errors.Is(err, context.Canceled):
		return nil // interrupted, which ends --follow
	case err != nil:
		return err
	case r.count == 0 && !f.follow:
		s.note("There is no message in %s.", name)
		return silentExit(exitEmpty)
	case !f.ack && !f.follow:
		s.note("Other receivers do not get %s for %v. When the work is done: mailbox ack %s", plural(r.count, "message"), f.visibility, r.last)
	}
	return nil
}

// A receiver is one run of mailbox recv.
type receiver struct {
	shell *shell
	flags *recvFlags
	name  string
	queue messageQueue
	count int
	last  string // id
	// absent says that the user was told that the queue does not exist.
	absent bool
}

// absentPause is how long --follow waits before it tries a missing queue again.
const absentPause = time.Second

// next receives up to most messages. With --follow it
// waits for some, and retries while the daemon is not available.
func (r *receiver) next(ctx context.Context, most int) ([]driver.Delivery, error) {
	request := driver.ReceiveRequest{Max: most, Visibility: r.flags.visibility, Wait: r.flags.wait}
	if r.flags.follow {
		request.Wait = followWait
	}
	for failures := 1; ; {
		got, err := r.queue.Receive(ctx, request)
		switch {
		case len(got) > 0:
			return got, nil
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case err == nil && !r.flags.follow:
			return nil, nil
		case err == nil:
			failures = 1
		case r.flags.follow && errors.Is(err, driver.ErrNotFound):
			if !r.absent {
				r.shell.tell("mailbox: queue %s does not exist yet; waiting for it.\n", r.name)
			}
			r.absent = true
			_ = backoff.Pause(ctx, absentPause)
		case !r.flags.follow || !retryable(err):
			return nil, err
		default:
			r.shell.tell("mailbox: %s; trying again.\n", explain(err).sentence)
			_ = backoff.Pause(ctx, backoff.AfterError(failures, err))
			failures++
		}
	}
}

// retryable reports whether a retry may succeed.
func retryable(err error) bool {
	f := explain(err)
	return f.exit == exitUnreachable || f.exit == exitFull
}

// printAll receives and prints messages.
func (r *receiver) printAll(ctx context.Context) error {
	for r.flags.max == 0 || r.count < r.flags.max {
		most := recvBatch
		if r.flags.max > 0 {
			most = min(most, r.flags.max-r.count)
		}
		got, err := r.next(ctx, most)
		if err != nil || len(got) == 0 {
			return err
		}
		if err := r.printBatch(ctx, got); err != nil {
			return err
		}
	}
	return nil
}

// printBatch prints deliveries, and then acks them. Deliveries that could not be printed are
// released.
func (r *receiver) printBatch(ctx context.Context, got []driver.Delivery) error {
	var receipts []driver.Receipt
	for i := range got {
		if err := r.print(&got[i]); err != nil {
			_ = r.release(ctx, got[i:]) // otherwise their leases expire
			return errors.Join(r.ack(ctx, receipts), err)
		}
		receipts = append(receipts, got[i].Receipt)
		r.count++
		r.last = got[i].ID
	}
	return r.ack(ctx, receipts)
}

func (r *receiver) print(d *driver.Delivery) error {
	switch {
	case r.flags.body:
		_, err := r.shell.Stdout.Write(append(d.Body[:len(d.Body):len(d.Body)], '\n'))
		return outputError(err)
	case r.shell.global.json:
		return r.shell.object(viewOf(r.name, d))
	}
	return r.shell.line("%s\t%s", d.ID, printable(d.Body, 0))
}

// ack acks printed deliveries if --ack is given, also when the command was
// interrupted in between. --follow continues when that fails: messages that are not acked
// are delivered again.
func (r *receiver) ack(ctx context.Context, receipts []driver.Receipt) error {
	if !r.flags.ack || len(receipts) == 0 {
		return nil
	}
	settling, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTime)
	defer cancel()
	err := r.queue.Ack(settling, receipts)
	for failures := 1; err != nil && retryable(err) && settling.Err() == nil; failures++ {
		_ = backoff.Pause(settling, backoff.AfterError(failures, err))
		err = r.queue.Ack(settling, receipts)
	}
	if err != nil && r.flags.follow && ctx.Err() == nil {
		f := explain(err)
		r.shell.tell("mailbox: not all of %s could be acked; they will be delivered again: %s.\n", plural(len(receipts), "message"), f.sentence)
		return nil
	}
	return err
}

// release makes deliveries ready again at their places, uncounted. A daemon that cannot do
// that ends their leases.
func (r *receiver) release(ctx context.Context, deliveries []driver.Delivery) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTime)
	defer cancel()
	nacks, extensions := make([]driver.Nack, len(deliveries)), make([]driver.Extension, len(deliveries))
	for i := range deliveries {
		nacks[i] = driver.Nack{Receipt: deliveries[i].Receipt, Mode: driver.NackRelease}
		extensions[i].Receipt = deliveries[i].Receipt
	}
	err := r.queue.Nack(ctx, nacks)
	if errors.Is(err, driver.ErrUnsupported) || errors.Is(err, driver.ErrInvalid) { // an earlier version does not know the mode
		_, err = r.queue.Extend(ctx, extensions)
	}
	return err
}
