package broker

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
)

// Limits bound the requests of callers, whatever their tokens allow. All but
// TraceEvents can be changed while the broker works.
type Limits struct {
	// MaxPayloadBytes bounds the body of a message, below the limit of the backend.
	// 0 means DefaultMaxPayloadBytes.
	MaxPayloadBytes int
	// MinVisibility is the shortest visibility of a receive.
	MinVisibility time.Duration
	// MaxWait bounds how long a receive can wait; 0 means no bound.
	MaxWait time.Duration
	// MaxInFlight bounds the messages in flight over all queues that were received
	// through this broker. 0 means no bound.
	MaxInFlight int
	// MaxDedupKeys bounds the remembered dedup keys over all queues that were sent
	// through this broker, and the unique keys that messages hold. 0 means no bound.
	MaxDedupKeys int
	// MaxWaiting bounds the receives that wait at once. 0 means DefaultMaxWaiting.
	MaxWaiting int
	// MaxQueues bounds how many queues exist: no queue is created beyond it. Existing
	// queues can always be used. 0 means DefaultMaxQueues.
	MaxQueues int
	// MaxSchedules bounds the schedules over all queues: none is made beyond it. 0 means
	// DefaultMaxSchedules.
	MaxSchedules int
	// MaxReplySlots bounds the reply slots that were created through this broker: none is made
	// beyond it. 0 means DefaultMaxReplySlots.
	MaxReplySlots int
	// MaxReplyBytes bounds the answers that a reply store in memory keeps: none is stored beyond it.
	// 0 means DefaultMaxReplyBytes.
	MaxReplyBytes int
	// BackoffBase and BackoffMax bound the delay of nacks that name none: at random up
	// to BackoffBase·2^attempt, at most BackoffMax. 0 means 200 ms and 60 s.
	BackoffBase, BackoffMax time.Duration
	// TraceEvents is how many events of traces are remembered. 0 means
	// DefaultTraceEvents; a negative value turns traces off.
	TraceEvents int
}

const (
	// DefaultMaxPayloadBytes makes a message fit into a frame of 1 MiB on every
	// surface, also as base64: a message that one surface accepts can be delivered on
	// all of them.
	DefaultMaxPayloadBytes = 704 << 10
	// DefaultMaxQueues is how many queues may exist.
	DefaultMaxQueues = 100_000
	// DefaultMaxWaiting is how many receives may wait at once: each costs about as
	// much memory as a connection.
	DefaultMaxWaiting = 32 << 10
	// DefaultMaxSchedules is how many schedules there may be over all queues: 10,000 of them take
	// a few megabytes of memory, unless their bodies are long.
	DefaultMaxSchedules = 10_000
	// DefaultMaxReplySlots is how many reply slots there may be: each takes about 600 bytes of memory,
	// and its answer.
	DefaultMaxReplySlots = 100_000
	// DefaultMaxReplyBytes is how many bytes of answers a reply store in memory keeps.
	DefaultMaxReplyBytes = 256 << 20
	// DefaultTraceEvents is about 5 MiB of memory.
	DefaultTraceEvents = 64 << 10

	defaultBackoffBase = 200 * time.Millisecond
	defaultBackoffMax  = time.Minute
)

// withDefaults replaces zero values by their defaults.
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
	if l.MaxSchedules == 0 {
		l.MaxSchedules = DefaultMaxSchedules
	}
	if l.MaxReplySlots == 0 {
		l.MaxReplySlots = DefaultMaxReplySlots
	}
	if l.MaxReplyBytes == 0 {
		l.MaxReplyBytes = DefaultMaxReplyBytes
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

// validate returns ErrInvalid for negative limits.
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
		{"MaxSchedules", int64(l.MaxSchedules)},
		{"MaxReplySlots", int64(l.MaxReplySlots)},
		{"MaxReplyBytes", int64(l.MaxReplyBytes)},
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

// SetLimits changes the limits of later operations. The error is ErrInvalid, and
// changes nothing.
func (b *Broker) SetLimits(l Limits) error {
	if err := l.validate(); err != nil {
		return err
	}
	l = l.withDefaults()
	b.limits.Store(&l)
	b.inFlight.SetLimit(int64(l.MaxInFlight))
	b.census.pool.SetLimit(int64(l.MaxQueues))
	b.scheduler.pool.SetLimit(int64(l.MaxSchedules))
	b.slots.pool.SetLimit(int64(l.MaxReplySlots))
	b.slots.bytes.SetLimit(int64(l.MaxReplyBytes))
	b.dedup.pool.SetLimit(int64(l.MaxDedupKeys))
	b.unique.pool.SetLimit(int64(l.MaxDedupKeys))
	b.waits.SetLimit(int64(l.MaxWaiting))
	b.metrics.InFlightLimit.Set(float64(l.MaxInFlight))
	b.metrics.QueueLimit.Set(float64(l.MaxQueues))
	return nil
}

// A State says which kinds of work a broker does.
type State int32

// The states, in the order of a drain.
const (
	// StateServing does everything.
	StateServing State = iota
	// StateStopping does everything too, but health checks fail, so that load balancers
	// choose other daemons.
	StateStopping
	// StateReadOnly refuses to add or change messages and queues. Receives and peeks
	// work.
	StateReadOnly
	// StateSettling refuses receives too, and ends those that wait. Messages in flight
	// can be acked, nacked and extended.
	StateSettling
	// StateStopped refuses everything.
	StateStopped
)

// retryWhenClosed is the RetryAfter while the daemon drains or cannot write: this
// daemon, or another one, will be up by then.
const retryWhenClosed = 2 * time.Second

// SetState changes which kinds of work the broker does, at once.
func (b *Broker) SetState(s State) {
	b.state.Store(int32(s))
	b.metrics.State.Set(float64(s))
	if s >= StateSettling {
		b.waiting.endAll()
	}
	if s > lastForReads {
		b.watches.endAll()
	}
}

// State returns the current state.
func (b *Broker) State() State { return State(b.state.Load()) }

// admit returns ErrUnavailable in states after last, the last state in which the
// broker does this kind of work.
func (b *Broker) admit(op, queue string, last State) error {
	if b.State() <= last {
		return nil
	}
	b.metrics.Rejected(metricDegraded)
	return &driver.Error{
		Code: driver.ErrUnavailable, Op: op, Queue: queue, RetryAfter: retryWhenClosed,
		Detail: "the daemon is draining, or its backend takes no writes", Err: errNotDone,
	}
}

var errNotDone = errors.New("it was not done")

// NotDone reports whether err is a refusal because the broker drains: it has done
// nothing, and another daemon may.
func NotDone(err error) bool { return errors.Is(err, errNotDone) }

// The last states in which kinds of work are done.
const (
	lastForWrites   = StateStopping
	lastForReads    = StateReadOnly
	lastForSettling = StateSettling
)

// Rules replace limits for a surface whose protocol promises other limits than the
// native ones.
type Rules struct {
	// MaxPayloadBytes replaces Limits.MaxPayloadBytes, within the limit of the backend;
	// 0 does not.
	MaxPayloadBytes int
	// AnyVisibility turns Limits.MinVisibility off.
	AnyVisibility bool
	// AnyWait shortens a wait that is too long, instead of refusing it.
	AnyWait bool
}

// Under returns the same caller with these rules.
func (c Caller) Under(rules Rules) Caller {
	c.rules = rules
	return c
}

// limits returns the limits for the caller.
func (c *Caller) limits() *Limits {
	limits := c.broker.limits.Load()
	if c.rules == (Rules{}) {
		return limits
	}
	own := *limits
	if c.rules.MaxPayloadBytes > 0 {
		own.MaxPayloadBytes = c.rules.MaxPayloadBytes
	}
	if c.rules.AnyVisibility {
		own.MinVisibility = 0
	}
	return &own
}

// daemonTokenTTL is how long the token of a [Broker.Daemon] is valid: long enough for
// one task, and for a clock that is set a little.
const daemonTokenTTL = 15 * time.Minute

// Daemon returns a caller that acts as the daemon in a tenant, for work that goes on
// after its client has gone away, and for what a surface must know before it can
// decide. It may do everything for daemonTokenTTL; make a new one for each task.
// Authorise the client before the daemon acts for it. Codes: those of
// keyring.Ring.Mint.
func (b *Broker) Daemon(tenant string) (Caller, error) {
	token, err := b.ring.Mint(tenant, capability.AllOperations(), capability.Queues(capability.AnyQueue()),
		capability.ExpiresAt(time.Now().Add(daemonTokenTTL)))
	if err != nil {
		return Caller{}, err
	}
	return b.Caller(token, Origin{}), nil
}
