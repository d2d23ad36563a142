package chaos_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/history"
)

// A report is a line that a process writes: that it handles signals, a call before it is made
// and again when it has returned, a message whose work is done, or an attempt at one.
type report struct {
	Awake bool `json:"awake,omitempty"`

	Call []history.Event `json:"call,omitempty"`
	Done string          `json:"done,omitempty"`

	Attempt *attempt `json:"attempt,omitempty"`
}

// A reporter writes reports. Each line is one write, so a process that is killed leaves only
// complete reports and at most one partial line.
type reporter struct {
	mu sync.Mutex // guards to
	to io.Writer
}

// write writes a line. If it fails, the process exits, because its next call would go
// unrecorded.
func (m *reporter) write(s report) {
	line, err := json.Marshal(s)
	if err == nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		_, err = m.to.Write(append(line, '\n'))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1) // see above
	}
}

// A recordingQueue reports every call, so that the calls of a killed process are known.
type recordingQueue struct {
	driver.Queue
	process  string
	calls    *atomic.Uint64
	reporter *reporter
}

// record makes one call through a recorder of its own.
func (w *recordingQueue) record(do func(q driver.Queue)) {
	number := w.calls.Add(1)
	recorder := history.NewRecorder(w.process)
	tell := func() {
		events := recorder.History().Events
		for i := range events {
			events[i].Call = number
			if events[i].Outcome == history.OutcomeUnknown {
				// The server may process the call after this process is gone.
				events[i].Return.Time += int64(lateEffect)
			}
		}
		w.reporter.write(report{Call: events})
	}
	do(recorder.Queue(&hookedQueue{w.Queue, tell}))
	tell()
}

// lateEffect bounds the time from the death of a caller to the effect of its call: a server
// that was stopped has the call in its socket.
const lateEffect = 3 * time.Second

func (w *recordingQueue) Send(ctx context.Context, msgs []driver.Outgoing) (sent []driver.Sent, err error) {
	w.record(func(q driver.Queue) { sent, err = q.Send(ctx, msgs) })
	return sent, err
}

func (w *recordingQueue) Receive(ctx context.Context, req driver.ReceiveRequest) (deliveries []driver.Delivery, err error) {
	w.record(func(q driver.Queue) { deliveries, err = q.Receive(ctx, req) })
	return deliveries, err
}

func (w *recordingQueue) Ack(ctx context.Context, receipts []driver.Receipt) (err error) {
	w.record(func(q driver.Queue) { err = q.Ack(ctx, receipts) })
	return err
}

func (w *recordingQueue) Nack(ctx context.Context, nacks []driver.Nack) (err error) {
	w.record(func(q driver.Queue) { err = q.Nack(ctx, nacks) })
	return err
}

func (w *recordingQueue) Extend(ctx context.Context, extensions []driver.Extension) (granted []time.Duration, err error) {
	w.record(func(q driver.Queue) { granted, err = q.Extend(ctx, extensions) })
	return granted, err
}

func (w *recordingQueue) DeadLetter(ctx context.Context, requests []driver.DeadLetterRequest) (err error) {
	w.record(func(q driver.Queue) { err = q.DeadLetter(ctx, requests) })
	return err
}

// A hookedQueue calls before ahead of each call.
type hookedQueue struct {
	driver.Queue
	before func()
}

func (th *hookedQueue) Send(ctx context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
	th.before()
	return th.Queue.Send(ctx, msgs)
}

func (th *hookedQueue) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	th.before()
	return th.Queue.Receive(ctx, req)
}

func (th *hookedQueue) Ack(ctx context.Context, receipts []driver.Receipt) error {
	th.before()
	return th.Queue.Ack(ctx, receipts)
}

func (th *hookedQueue) Nack(ctx context.Context, nacks []driver.Nack) error {
	th.before()
	return th.Queue.Nack(ctx, nacks)
}

func (th *hookedQueue) Extend(ctx context.Context, extensions []driver.Extension) ([]time.Duration, error) {
	th.before()
	return th.Queue.Extend(ctx, extensions)
}

func (th *hookedQueue) DeadLetter(ctx context.Context, requests []driver.DeadLetterRequest) error {
	th.before()
	return th.Queue.DeadLetter(ctx, requests)
}

// records are the reports of all processes of one env. They are safe for concurrent use.
type records struct {
	mu    sync.Mutex // guards the fields below
	calls map[callID][]history.Event
	done  map[string]int       // by message id
	tried map[string][]attempt // by message id
}

// A callID identifies one call of one process.
type callID struct {
	process string
	call    uint64
}

func newRecords() *records {
	return &records{calls: make(map[callID][]history.Event), done: make(map[string]int), tried: make(map[string][]attempt)}
}

// add adds a report. The last report of a call replaces the earlier ones.
func (a *records) add(s report) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s.Done != "" {
		a.done[s.Done]++
	}
	if s.Attempt != nil {
		a.tried[s.Attempt.ID] = append(a.tried[s.Attempt.ID], *s.Attempt)
	}
	if len(s.Call) > 0 {
		a.calls[callID{s.Call[0].Process, s.Call[0].Call}] = s.Call
	}
}

// worked returns how many messages were done.
func (a *records) worked() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.done)
}

// events yields the recorded events, in no particular order.
func (a *records) events() iter.Seq[history.Event] {
	return func(yield func(history.Event) bool) {
		a.mu.Lock()
		defer a.mu.Unlock()
		for _, call := range a.calls {
			for _, event := range call {
				if !yield(event) {
					return
				}
			}
		}
	}
}
