package sqsbox

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// Limits of SQS.
const (
	maxEntries    = 10      // of one request, in either direction
	maxBatchBytes = 1 << 20 // of one request, bodies and attributes
	maxAttributes = 10      // of one message
	maxInFlight   = 120_000
	maxReceives   = 1000 // the largest maxReceiveCount

	longestPoll      = 20 * time.Second
	longestRetention = 14 * 24 * time.Hour
	shortestKeeping  = time.Minute // the least MessageRetentionPeriod
	dedupWindow      = 5 * time.Minute
	purgeCooldown    = time.Minute
)

// Options configure a Backend. The zero value, and nil, mean the defaults.
type Options struct {
	// Prefix is what the names of all queues at SQS begin with, so that several
	// programs, or tenants, can share an account. It has letters, digits, - and _
	// only, and at most 32 of them.
	Prefix string
	// Create makes OpenQueue create queues that are not there, as other backends
	// do. Without it they are ErrNotFound, and only ConfigureQueue creates: a name
	// with a typing error costs nobody a queue.
	Create bool
	// Poll is how long one request waits at SQS, rounded up to whole seconds; 0 means
	// 20, which is also the most. Receives that wait longer ask again. Shorter polls
	// cost more requests and let Close return sooner.
	Poll time.Duration
	// Linger is how long Close waits for requests that are under way, so that what
	// they bring can be given back. Those that are still out then are abandoned: a
	// message that SQS was about to hand out comes back when its visibility ends.
	// 0 means five seconds.
	Linger time.Duration
	// Parallel is how many requests of one kind (sends, acks, extensions) can be
	// out for one queue, except for sends to a FIFO queue, which go one after the
	// other. 0 means 8.
	Parallel int
	// Logger gets what nobody else is told: messages that could not be given back.
	// Nil means silence.
	Logger *slog.Logger
}

// check refuses what no backend can honour.
func (o *Options) check() error {
	for field, value := range map[string]int64{"Poll": int64(o.Poll), "Linger": int64(o.Linger), "Parallel": int64(o.Parallel)} {
		if err := driver.CheckOption(field, value); err != nil {
			return err
		}
	}
	if o.Poll > longestPoll {
		return &driver.Error{Code: driver.ErrInvalid, Op: "open", Field: "Poll", Detail: fmt.Sprintf("%v is more than the limit of %v", o.Poll, longestPoll)}
	}
	return checkPrefix(o.Prefix)
}

func (o *Options) withDefaults() Options {
	var filled Options
	if o != nil {
		filled = *o
	}
	if filled.Poll == 0 {
		filled.Poll = longestPoll
	}
	if filled.Linger == 0 {
		filled.Linger = 5 * time.Second
	}
	if filled.Parallel == 0 {
		filled.Parallel = 8
	}
	if filled.Logger == nil {
		filled.Logger = slog.New(slog.DiscardHandler)
	}
	return filled
}
