package sqsbox_test

import (
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/driver/drivertest"
	"github.com/mailboxmq/mailbox/internal/testing/sqstest"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
)

// A fifoSite has only FIFO queues: it appends .fifo to each name.
type fifoSite struct{ *site }

const fifo = ".fifo"

func (s fifoSite) OpenQueue(ctx context.Context, name string) (driver.Queue, error) {
	if name != "" {
		name += fifo
	}
	queue, err := s.site.OpenQueue(ctx, name)
	if err != nil {
		return nil, err
	}
	return soloQueue{queue}, nil
}

func (s fifoSite) ConfigureQueue(ctx context.Context, name string, config driver.Config) error {
	if config.DeadLetterTo != "" {
		config.DeadLetterTo += fifo
	}
	if name != "" {
		name += fifo
	}
	return s.site.ConfigureQueue(ctx, name, config)
}

func (s fifoSite) QueueConfig(ctx context.Context, name string) (driver.Config, error) {
	config, err := s.site.QueueConfig(ctx, name+fifo)
	config.DeadLetterTo = strings.TrimSuffix(config.DeadLetterTo, fifo)
	return config, err
}

func (s fifoSite) DeleteQueue(ctx context.Context, name string) error {
	return s.site.DeleteQueue(ctx, name+fifo)
}

func (s fifoSite) Queues(ctx context.Context) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for name, err := range s.site.Queues(ctx) {
			if !yield(strings.TrimSuffix(name, fifo), err) {
				return
			}
		}
	}
}

const (
	noDelay   = "FIFO queues of SQS do not delay single messages, and Traits.MaxDelay says so"
	notSolo   = "the case is about groups, and the queue under test hides its own"
	otherOnes = "SQS does not report duplicates; only the process that sent the first message knows"
)

// fifoFails are cases that FIFO queues fail, besides those that all queues fail.
var fifoFails = map[string]string{
	"SND-1/the traits are complete":                                               noDelay,
	"SND-2/a delayed message is counted and cannot be received":                   noDelay,
	"SND-2/a delayed message arrives when its delay is over, not before":          noDelay,
	"SND-2/delayed messages arrive each at its own time":                          noDelay,
	"SND-2/hundreds of delays in any order are all kept":                          noDelay,
	"SND-2/a delayed message does not hold up later ones":                         noDelay,
	"SND-2/the longest delay is honoured":                                         noDelay,
	"SND-2/after a clean restart: a delayed message does not come early":          noDelay,
	"DUP-1/only key and body count, not attributes, delay or group":               noDelay,
	"RCV-2/a delay that is over wakes a waiting receiver":                         noDelay,
	"RCV-2/an earlier deadline counts although a later one was there first":       noDelay,
	"RCV-2/closing a handle touches no message and no lease":                      noDelay,
	"CNT-1/the waiting count is ready, delayed and in flight":                     noDelay,
	"CNT-3/purge removes ready, delayed and in-flight messages and says how many": noDelay,
	"CNT-3/after a clean restart: what was purged stays gone":                     noDelay,
	"SVC-1/configuring a queue keeps its messages":                                noDelay,
	"DLQ-9/a message that comes due, or back, can move":                           noDelay,
	"DLQ-9/delayed messages and those in flight stay":                             noDelay,

	"ORD-3/messages of a group stay in order with one shard":                         notSolo,
	"ORD-4/a queue with strict groups says so":                                       notSolo,
	"ORD-4/a plain queue delivers a group's next message while another is in flight": notSolo,
	"ORD-4/messages without a group are one group":                                   notSolo,
	"SVC-1/a change that a live queue cannot make is refused, not ignored":           notSolo,
	"SND-1/odd but good queue names work":                                            "with .fifo appended the longest of the names is too long",
	"DUP-3/after a clean restart: dedup keys are remembered":                         otherOnes,
}

// A soloQueue is a FIFO queue in which each message without a group gets a group of its
// own, so that none waits for another: a queue without order, but with dedup keys.
type soloQueue struct{ driver.Queue }

const solo = "solo-"

func (q soloQueue) Traits() driver.Traits {
	traits := q.Queue.Traits()
	traits.Ordering, traits.StrictGroups = driver.OrderingNone, false
	return traits
}

func (q soloQueue) Send(ctx context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
	msgs = slices.Clone(msgs)
	for i := range msgs {
		if msgs[i].Group == "" {
			msgs[i].Group = fmt.Sprint(solo, rand.Uint64())
		}
	}
	return q.Queue.Send(ctx, msgs)
}

func (q soloQueue) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	got, err := q.Queue.Receive(ctx, req)
	for i := range got {
		if strings.HasPrefix(got[i].Group, solo) {
			got[i].Group = ""
		}
	}
	return got, err
}

func TestConformanceOfFIFOQueues(t *testing.T) {
	volume.Repeats(t)
	drivertest.Run(t, drivertest.Backend{
		Open: func(t testing.TB) driver.Opener {
			begin(t, fifoFails)
			return fifoSite{openSite(t, sqstest.Prefix())}
		},
		Restart: func(t testing.TB, old driver.Opener, how drivertest.Crash) driver.Opener {
			return fifoSite{restart(t, old.(fifoSite).site, how).(*site)}
		},
		Tick: time.Second,
	})
}
