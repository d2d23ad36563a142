package mailboxtest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/membox"
)

// Faults is a backend that forwards to another one and fails on command. Make one with
// NewFaults. It is safe for concurrent use.
type Faults struct {
	backend driver.Opener
	own     *membox.Backend // closed by Close; nil if backend was given

	mu     sync.Mutex // guards the fields below
	faults []*activeFault
	calls  map[string]int
	waits  map[*receiveWait]struct{}

	pasts pasts
}

// A receiveWait is a receive that waits in the backend and can be interrupted.
type receiveWait struct {
	queue       string
	cancel      context.CancelFunc
	interrupted bool
}

var _ driver.Opener = (*Faults)(nil)

// NewFaults returns a backend that forwards to backend. Nil means a memory backend of
// its own, which Close closes.
func NewFaults(backend driver.Opener) *Faults {
	f := &Faults{
		backend: backend,
		calls:   make(map[string]int),
		waits:   make(map[*receiveWait]struct{}),
	}
	if backend == nil {
		f.own = membox.New(nil)
		f.backend = f.own
	}
	return f
}

// Close closes the memory backend that NewFaults made, if it did.
func (f *Faults) Close() error {
	if f.own == nil {
		return nil
	}
	return f.own.Close()
}

// Add adds a fault and returns a function that removes it. The fault hits a receive
// that already waits at once, as when a connection is cut. Add panics if it does not know
// the operation.
func (f *Faults) Add(fault Fault) (remove func()) {
	if !slices.Contains(operations, fault.Op) {
		panic(fmt.Sprintf("mailboxtest: Fault.Op: unknown operation %q; want one of %q", fault.Op, operations[1:])) // a mistake in a test
	}
	active := &activeFault{Fault: fault}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults = append(f.faults, active)
	for wait := range f.waits {
		if active.concerns(opReceive, wait.queue) {
			wait.interrupted = true
			wait.cancel()
		}
	}
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.faults = slices.DeleteFunc(f.faults, func(other *activeFault) bool { return other == active })
	}
}

// Clear removes all faults.
func (f *Faults) Clear() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults = nil
}

// Calls returns how often op was called, on any queue, with or without a fault. opAny
// counts all operations.
func (f *Faults) Calls(op string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[op]
}

// OpenQueue opens a queue of the backend. It blocks, and fails, as the backend does, and
// applies the faults of opOpen.
func (f *Faults) OpenQueue(ctx context.Context, name string) (driver.Queue, error) {
	f.count(opOpen)
	late, err := f.meet(ctx, opOpen, name)
	if err != nil {
		return nil, err
	}
	queue, err := f.backend.OpenQueue(ctx, name)
	if err != nil {
		return nil, err
	}
	if late != nil {
		return nil, firstError(late, queue.Close())
	}
	return &faultQueue{queue, f, name}, nil
}

// Expire ends a delivery as if its visibility had just ended: its receipt is not valid
// any more, and the message is ready again at its place.
//
//	faults.Expire(ctx, orders.Name(), message.Receipt)
//
// Codes: ErrReceiptExpired if it was over already.
func (f *Faults) Expire(ctx context.Context, queue string, receipt driver.Receipt) error {
	return f.behind(ctx, queue, func(q driver.Queue) error {
		_, err := q.Extend(ctx, []driver.Extension{{Receipt: receipt}})
		return driver.At(err, 0)
	})
}

// behind runs do with a queue of the backend.
func (f *Faults) behind(ctx context.Context, name string, do func(driver.Queue) error) error {
	queue, err := f.backend.OpenQueue(ctx, name)
	if err != nil {
		return err
	}
	return firstError(do(queue), queue.Close())
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func (f *Faults) count(op string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls[op]++
	f.calls[opAny]++
}

// meet applies the faults to a call. It waits for their delays, and returns the error
// that the call must fail with at once, or the one that it must fail with after the
// backend has answered.
func (f *Faults) meet(ctx context.Context, op string, queue string) (late, err error) {
	var delay time.Duration
	f.mu.Lock()
	for _, fault := range f.faults {
		if !fault.concerns(op, queue) || !fault.hit() {
			continue
		}
		delay += fault.Delay
		switch {
		case fault.Err == nil:
		case fault.Late:
			late = firstError(late, failure(fault.Err, op, queue))
		default:
			err = firstError(err, failure(fault.Err, op, queue))
		}
	}
	f.mu.Unlock()
	if delay > 0 {
		timer := time.NewTimer(delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return late, err
}

// startWait makes a receive interruptible.
func (f *Faults) startWait(ctx context.Context, queue string) (context.Context, *receiveWait) {
	ctx, cancel := context.WithCancel(ctx)
	wait := &receiveWait{queue: queue, cancel: cancel}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.waits[wait] = struct{}{}
	return ctx, wait
}

// endWait reports whether the receive was interrupted.
func (f *Faults) endWait(wait *receiveWait) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.waits, wait)
	wait.cancel()
	return wait.interrupted
}
