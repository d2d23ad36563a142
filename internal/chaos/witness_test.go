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
	"github.com/mailboxmq/mailbox/driver/drivertest"
)

// A statement is a line that a process says about itself: that it hears signals, of a call,
// before it is made and when it has returned, or of a message whose work is done.
type statement struct {
	Awake bool `json:"awake,omitempty"`

	Call []drivertest.Event `json:"call,omitempty"`
	Done string             `json:"done,omitempty"`
}

// A mouth is how a process speaks. Each line is one write, so that being killed at any
// moment leaves the truth.
type mouth struct {
	mu sync.Mutex // guards to
	to io.Writer
}

// say writes a line. A process that cannot tell what it does must not do it.
func (m *mouth) say(s statement) {
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

// A witness is a queue that tells of every call, so that what a process did is known
// although it was killed.
type witness struct {
	driver.Queue
	process string
	calls   *atomic.Uint64
	mouth   *mouth
}

// watch makes one call through a recorder of its own.
func (w *witness) watch(do func(q driver.Queue)) {
	number := w.calls.Add(1)
	recorder := drivertest.NewRecorder(w.process)
	tell := func() {
		events := recorder.History().Events
		for i := range events {
			events[i].Call = number
			if events[i].Outcome == drivertest.OutcomeUnknown {
				// The server may get to it when this process is gone.
				events[i].Return.Time += int64(lateness)
			}
		}
		w.mouth.say(statement{Call: events})
	}
	do(recorder.Queue(&threshold{w.Queue, tell}))
	tell()
}

// lateness is how long after its caller has died a call may take effect: a server that was
// stopped has it in its socket.
const lateness = 3 * time.Second

func (w *witness) Send(ctx context.Context, msgs []driver.Outgoing) (sent []driver.Sent, err error) {
	w.watch(func(q driver.Queue) { sent, err = q.Send(ctx, msgs) })
	return sent, err
}

func (w *witness) Receive(ctx context.Context, req driver.ReceiveRequest) (deliveries []driver.Delivery, err error) {
	w.watch(func(q driver.Queue) { deliveries, err = q.Receive(ctx, req) })
	return deliveries, err
}

func (w *witness) Ack(ctx context.Context, receipts []driver.Receipt) (err error) {
	w.watch(func(q driver.Queue) { err = q.Ack(ctx, receipts) })
	return err
}

func (w *witness) Nack(ctx context.Context, nacks []driver.Nack) (err error) {
	w.watch(func(q driver.Queue) { err = q.Nack(ctx, nacks) })
	return err
}

func (w *witness) Extend(ctx context.Context, extensions []driver.Extension) (granted []time.Duration, err error) {
	w.watch(func(q driver.Queue) { granted, err = q.Extend(ctx, extensions) })
	return granted, err
}

func (w *witness) DeadLetter(ctx context.Context, requests []driver.DeadLetterRequest) (err error) {
	w.watch(func(q driver.Queue) { err = q.DeadLetter(ctx, requests) })
	return err
}

// A threshold calls cross just before it lets a call through.
type threshold struct {
	driver.Queue
	cross func()
}

func (th *threshold) Send(ctx context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
	th.cross()
	return th.Queue.Send(ctx, msgs)
}

func (th *threshold) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	th.cross()
	return th.Queue.Receive(ctx, req)
}

func (th *threshold) Ack(ctx context.Context, receipts []driver.Receipt) error {
	th.cross()
	return th.Queue.Ack(ctx, receipts)
}

func (th *threshold) Nack(ctx context.Context, nacks []driver.Nack) error {
	th.cross()
	return th.Queue.Nack(ctx, nacks)
}

func (th *threshold) Extend(ctx context.Context, extensions []driver.Extension) ([]time.Duration, error) {
	th.cross()
	return th.Queue.Extend(ctx, extensions)
}

func (th *threshold) DeadLetter(ctx context.Context, requests []driver.DeadLetterRequest) error {
	th.cross()
	return th.Queue.DeadLetter(ctx, requests)
}

// An account is what processes have said about one place, from many goroutines.
type account struct {
	mu    sync.Mutex // guards the fields below
	calls map[testimony][]drivertest.Event
	done  map[string]int // by message id
}

// A testimony is what one call of one process was.
type testimony struct {
	process string
	call    uint64
}

func newAccount() *account {
	return &account{calls: make(map[testimony][]drivertest.Event), done: make(map[string]int)}
}

// hear takes a statement down. What is said last about a call counts.
func (a *account) hear(s statement) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s.Done != "" {
		a.done[s.Done]++
	}
	if len(s.Call) > 0 {
		a.calls[testimony{s.Call[0].Process, s.Call[0].Call}] = s.Call
	}
}

// worked returns how many messages were done.
func (a *account) worked() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.done)
}

// events yields what happened, in no order.
func (a *account) events() iter.Seq[drivertest.Event] {
	return func(yield func(drivertest.Event) bool) {
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
