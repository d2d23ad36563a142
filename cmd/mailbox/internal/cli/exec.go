package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// The outcomes of an execution.
const (
	outcomeAcked    = "acked"
	outcomeNacked   = "nacked"
	outcomeReleased = "released" // returned to the queue because the CLI was stopped
	outcomeLost     = "lost"     // another receiver may have the message
)

// executionView is the outcome for a message in JSON.
type executionView struct {
	ID         string `json:"id"`
	Queue      string `json:"queue"`
	Deliveries int    `json:"deliveries"`
	Outcome    string `json:"outcome"`
	Error      string `json:"error,omitempty"`
	DurationMS int64  `json:"duration_ms"`
}

// killTime is how long a command may take to end after it was told to.
const killTime = 5 * time.Second

// stderrTail is how many bytes of a command's standard error are kept as the
// cause.
const stderrTail = 1 << 10

// execAll runs the command for each message.
func (r *receiver) execAll(ctx context.Context) error {
	var running sync.WaitGroup
	free := make(chan struct{}, r.flags.parallel)
	results := make(chan executionView)
	finished := make(chan error, 1)
	go func() { finished <- r.printExecutions(results) }()
	err := func() error {
		for r.flags.max == 0 || r.count < r.flags.max {
			select {
			case free <- struct{}{}: // receive only when a command can run
			case <-ctx.Done():
				return ctx.Err()
			}
			got, err := r.next(ctx, 1)
			if err != nil || len(got) == 0 {
				return err
			}
			r.count++
			running.Go(func() {
				results <- r.execute(ctx, &got[0])
				<-free
			})
		}
		return nil
	}()
	running.Wait()
	close(results)
	outcome := <-finished
	switch {
	case err != nil && (!r.flags.follow || !errors.Is(err, context.Canceled)):
		return err
	case r.flags.follow:
		return nil
	case r.count == 0:
		r.shell.note("There is no message in %s.", r.name)
		return silentExit(exitEmpty)
	}
	return outcome
}

// printExecutions prints the outcomes. Its error sets the exit
// code.
func (r *receiver) printExecutions(results <-chan executionView) (err error) {
	for v := range results {
		if v.Outcome != outcomeAcked && err == nil {
			err = silentExit(exitExec)
		}
		switch {
		case r.shell.global.json:
			if printed := r.shell.object(v); printed != nil {
				err = printed
			}
		case v.Outcome != outcomeAcked:
			r.shell.tell("mailbox: %s was %s: %s\n", v.ID, v.Outcome, printable([]byte(v.Error), 200))
		}
	}
	return err
}

// execute runs the command for one message, and settles it.
func (r *receiver) execute(ctx context.Context, d *driver.Delivery) executionView {
	began := time.Now()
	commandCtx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	extended := make(chan struct{})
	go func() {
		defer close(extended)
		r.extend(commandCtx, stop, d.Receipt)
	}()
	failure := r.command(commandCtx, d)
	cause := context.Cause(commandCtx)
	stop(nil)
	<-extended
	v := executionView{ID: d.ID, Queue: r.name, Deliveries: d.Deliveries, Outcome: outcomeAcked}
	settleCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTime)
	defer cancel()
	var err error
	switch {
	case failure == nil:
		err = r.queue.Ack(settleCtx, []driver.Receipt{d.Receipt})
	case errors.Is(cause, driver.ErrReceiptExpired):
		v.Outcome, v.Error = outcomeLost, "the lease was lost while the command ran"
	case cause != nil:
		v.Outcome, v.Error = outcomeReleased, "the command was interrupted"
		err = r.release(ctx, []driver.Delivery{*d})
	default:
		v.Outcome, v.Error = outcomeNacked, failure.Error()
		err = r.queue.Nack(settleCtx, []driver.Nack{{Receipt: d.Receipt, Delay: r.delay(d.Deliveries), Cause: failure.Error()}})
	}
	if err != nil {
		v.Outcome, v.Error = outcomeLost, explain(err).sentence
	}
	v.DurationMS = time.Since(began).Milliseconds()
	return v
}

// extend extends a lease until ctx ends, or stops the command when it is lost.
func (r *receiver) extend(ctx context.Context, stop context.CancelCauseFunc, receipt driver.Receipt) {
	if r.flags.visibility <= 0 {
		return
	}
	ticker := time.NewTicker(max(r.flags.visibility/3, time.Millisecond))
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		_, err := r.queue.Extend(ctx, []driver.Extension{{Receipt: receipt, Visibility: r.flags.visibility}})
		if errors.Is(err, driver.ErrReceiptExpired) && ctx.Err() == nil {
			stop(driver.ErrReceiptExpired)
			return
		}
	}
}

// delay returns how long a message waits after its command failed: --retry-delay,
// or a random part of a backoff that doubles with each delivery.
func (r *receiver) delay(deliveries int) time.Duration {
	if r.flags.retryDelay >= 0 {
		return r.flags.retryDelay
	}
	longest := min(time.Minute, time.Second<<min(max(deliveries-1, 0), 10))
	return time.Duration(rand.Int64N(int64(longest)))
}

// command runs the command. Its error says how it failed, with the end of what the command
// wrote to standard error.
func (r *receiver) command(ctx context.Context, d *driver.Delivery) error {
	attributes, _ := json.Marshal(d.Attributes) // cannot fail: a map of strings
	c := shellCommand(ctx, r.flags.exec)
	c.Env = append(append([]string(nil), r.shell.Environ...),
		"MAILBOX_ID="+d.ID, "MAILBOX_QUEUE="+r.name, fmt.Sprintf("MAILBOX_DELIVERIES=%d", d.Deliveries),
		"MAILBOX_GROUP="+d.Group, "MAILBOX_REPLY_TO="+d.ReplyTo, "MAILBOX_CORRELATION_ID="+d.CorrelationID,
		"MAILBOX_ATTRIBUTES="+string(attributes))
	c.Stdin = strings.NewReader(string(d.Body))
	c.Stdout = r.shell.Stdout
	if r.shell.global.json { // then standard output has only JSON
		c.Stdout = r.shell.Stderr
	}
	tail := &tailWriter{to: r.shell.Stderr}
	c.Stderr = tail
	c.WaitDelay = killTime
	err := c.Run()
	if err == nil || errors.Is(err, exec.ErrWaitDelay) && c.ProcessState.Success() {
		return nil
	}
	if text := tail.text(); text != "" {
		return fmt.Errorf("%w: %s", err, text)
	}
	return err
}

// A tailWriter passes writes on, and keeps their end.
type tailWriter struct {
	to   io.Writer
	kept []byte
}

// Write passes p on.
func (t *tailWriter) Write(p []byte) (int, error) {
	t.kept = append(t.kept, p...)
	if over := len(t.kept) - stderrTail; over > 0 {
		t.kept = append([]byte(nil), t.kept[over:]...)
	}
	return t.to.Write(p)
}

func (t *tailWriter) text() string { return strings.ToValidUTF8(strings.TrimSpace(string(t.kept)), "") }
