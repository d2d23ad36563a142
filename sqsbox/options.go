package sqsbox

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/opening"
)

// Limits of SQS.
const (
	maxEntries    = 10      // per request, in either direction
	maxBatchBytes = 1 << 20 // per request, bodies and attributes
	maxAttributes = 10      // per message
	maxInFlight   = 120_000
	maxReceives   = 1000 // the largest maxReceiveCount

	longestPoll       = 20 * time.Second
	longestRetention  = 14 * 24 * time.Hour
	shortestRetention = time.Minute // the least MessageRetentionPeriod
	dedupWindow       = 5 * time.Minute
	purgeCooldown     = time.Minute
	maxDelay          = 15 * time.Minute
)

// Options configure a Backend. The zero value, and nil, mean the defaults.
type Options struct {
	// Prefix begins the names of all queues at SQS, so that several programs, or
	// tenants, can share an account. It has at most 32 letters, digits, - and _.
	Prefix string
	// Create makes OpenQueue create queues that do not exist, as other backends
	// do. Without it they are ErrNotFound, and only ConfigureQueue creates: a
	// mistyped name does not create a queue.
	Create bool
	// Poll is how long one request waits at SQS, rounded up to whole seconds; 0 means
	// 20, which is also the maximum. Receives that wait longer make several requests.
	// Shorter polls cost more requests and let Close return sooner.
	Poll time.Duration
	// Linger is how long Close waits for requests under way, so that messages they
	// return can be given back. Then it cancels them: a message that SQS was about
	// to deliver comes back when its visibility ends. 0 means five seconds.
	Linger time.Duration
	// Parallel is how many requests of one kind (sends, acks, extensions) can be
	// under way for one queue, except for sends to a FIFO queue, which are made one
	// after the other. 0 means 8.
	Parallel int
	// Logger gets the failures that no caller sees: messages that could not be given
	// back. Nil means no logging.
	Logger *slog.Logger
}

// check returns ErrInvalid for an option out of range.
func (o *Options) check() error {
	for field, value := range map[string]int64{"Poll": int64(o.Poll), "Linger": int64(o.Linger), "Parallel": int64(o.Parallel)} {
		if err := opening.CheckOption(field, value); err != nil {
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
