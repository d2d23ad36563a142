package broker

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// Limits bound what callers can ask for, whatever their tokens allow. All of
// them can be changed while the broker works, but for TraceEvents.
type Limits struct {
	// MaxPayloadBytes bounds a message's payload, below the bound of the
	// backend. 0 means DefaultMaxPayloadBytes.
	MaxPayloadBytes int
	// MinVisibility is the shortest that a receive may ask for.
	MinVisibility time.Duration
	// MaxWait bounds how long a receive can wait; 0 means no bound.
	MaxWait time.Duration
	// MaxInFlight bounds the messages that are out over all queues, as far as
	// they were received through this broker. 0 means no bound.
	MaxInFlight int
	// MaxDedupKeys bounds the dedup keys that are remembered over all queues, as far
	// as they were sent through this broker. 0 means no bound.
	MaxDedupKeys int
	// MaxWaiting bounds the receives that wait at once. 0 means DefaultMaxWaiting.
	MaxWaiting int
	// MaxQueues bounds the queues that exist, as far as they are made here. Those
	// that exist already can always be used. 0 means DefaultMaxQueues.
	MaxQueues int
	// BackoffBase and BackoffMax are those of nacks that do not say how long to
	// wait: at random up to BackoffBase·2^attempt, and BackoffMax at most. 0
	// means 200 ms and 60 s.
	BackoffBase, BackoffMax time.Duration
	// TraceEvents is how much of the lives of messages is remembered. 0 means
	// DefaultTraceEvents, less means nothing is.
	TraceEvents int
}

const (
	// DefaultMaxPayloadBytes leaves a message room in a frame of 1 MiB on every
	// surface, those that write bytes as base64 included: what one of them
	// accepts all of them can deliver.
	DefaultMaxPayloadBytes = 704 << 10
	// DefaultMaxQueues is how many queues there may be.
	DefaultMaxQueues = 100_000
	// DefaultMaxWaiting is how many receives wait at a time: each costs about as
	// much memory as a connection.
	DefaultMaxWaiting = 32 << 10
	// DefaultTraceEvents is about 6 MiB of memory.
	DefaultTraceEvents = 64 << 10

	defaultBackoffBase = 200 * time.Millisecond
	defaultBackoffMax  = time.Minute
)

// withDefaults fills in what is zero and stands for a default.
func (l Limits) withDefaults() Limits {
	if l.MaxPayloadBytes == 0 {
		l.MaxPayloadBytes = DefaultMaxPayloadBytes
	}
	if l.MaxQueues == 0 {
		l.MaxQueues = DefaultMaxQueues
	}
	if l.MaxWaiting == 0 {
		l.MaxWaiting = DefaultMaxWaiting
	}
	if l.BackoffBase == 0 {
		l.BackoffBase = defaultBackoffBase
	}
	if l.BackoffMax == 0 {
		l.BackoffMax = defaultBackoffMax
	}
	if l.TraceEvents == 0 {
		l.TraceEvents = DefaultTraceEvents
	}
	if l.MaxInFlight == 0 {
		l.MaxInFlight = math.MaxInt32
	}
	if l.MaxDedupKeys == 0 {
		l.MaxDedupKeys = math.MaxInt32
	}
	return l
}

// validate returns ErrInvalid for what makes no sense.
func (l Limits) validate() error {
	for _, bound := range []struct {
		field string
		value int64
	}{
		{"MaxPayloadBytes", int64(l.MaxPayloadBytes)},
		{"MinVisibility", int64(l.MinVisibility)},
		{"MaxWait", int64(l.MaxWait)},
		{"MaxInFlight", int64(l.MaxInFlight)},
		{"MaxDedupKeys", int64(l.MaxDedupKeys)},
		{"MaxWaiting", int64(l.MaxWaiting)},
		{"MaxQueues", int64(l.MaxQueues)},
		{"BackoffBase", int64(l.BackoffBase)},
		{"BackoffMax", int64(l.BackoffMax)},
	} {
		if bound.value < 0 {
			return &driver.Error{Code: driver.ErrInvalid, Op: "start", Field: bound.field, Detail: fmt.Sprintf("%d is negative", bound.value)}
		}
	}
	return nil
}

// Limits returns the limits in force.
func (b *Broker) Limits() Limits { return *b.limits.Load() }

// SetLimits changes the limits for what is asked from now on. The error is
// ErrInvalid, and nothing is changed then.
func (b *Broker) SetLimits(l Limits) error {
	if err := l.validate(); err != nil {
		return err
	}
	l = l.withDefaults()
	b.limits.Store(&l)
	b.inFlight.SetLimit(int64(l.MaxInFlight))
	b.census.pool.SetLimit(int64(l.MaxQueues))
	b.dedup.pool.SetLimit(int64(l.MaxDedupKeys))
	b.waits.SetLimit(int64(l.MaxWaiting))
	b.metrics.InFlightLimit.Set(float64(l.MaxInFlight))
	b.metrics.QueueLimit.Set(float64(l.MaxQueues))
	return nil
}

// A State is how much of its work a broker does.
type State int32

// The states, in the order in which a daemon that stops goes through them.
const (
	// StateServing does everything.
	StateServing State = iota
	// StateStopping does everything too, and says that it will not for long: health
	// checks fail, so that load balancers send their clients elsewhere.
	StateStopping
	// StateReadOnly refuses what adds or changes messages and queues. Receives
	// and looks go on.
	StateReadOnly
	// StateSettling refuses receives too, and ends those that wait. What is out
	// can be acked, nacked and extended.
	StateSettling
	// StateStopped refuses everything.
	StateStopped
)

// retryWhenClosed is when a caller should try again that came while the daemon
// was going down or could not write: it, or another one, will be up by then.
const retryWhenClosed = 2 * time.Second

// SetState opens or closes the broker for kinds of work, at once.
func (b *Broker) SetState(s State) {
	b.state.Store(int32(s))
	b.metrics.State.Set(float64(s))
	if s >= StateSettling {
		b.waiting.endAll()
	}
}

// State returns how much the broker does now.
func (b *Broker) State() State { return State(b.state.Load()) }

// admit returns ErrUnavailable if the broker does not do work of this kind now.
// last is the last state in which it does.
func (b *Broker) admit(op, queue string, last State) error {
	if b.State() <= last {
		return nil
	}
	b.metrics.Rejected(metricDegraded)
	return &driver.Error{
		Code: driver.ErrUnavailable, Op: op, Queue: queue, RetryAfter: retryWhenClosed,
		Detail: "the daemon is going down, or its backend takes no writes", Err: errNotDone,
	}
}

var errNotDone = errors.New("it was not done")

// NotDone reports whether err says that the broker does not do this kind of work any
// more, and has done nothing: another daemon may.
func NotDone(err error) bool { return errors.Is(err, errNotDone) }

// The last states in which kinds of work are done.
const (
	lastForWrites   = StateStopping
	lastForReads    = StateReadOnly
	lastForSettling = StateSettling
)
