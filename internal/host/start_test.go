package host

import (
	"sync"
	"testing"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/completion"
	"github.com/mailboxmq/mailbox/internal/engine"
)

// quickJournal makes operations durable at once: those of Await when the journal is
// unlocked, before the caller goes on, unless they have to be published.
type quickJournal struct {
	Journal // other methods are not called

	mu       sync.Mutex
	pendings []*Pending
}

func (j *quickJournal) Lock() { j.mu.Lock() }

func (j *quickJournal) Unlock() {
	var now []*Pending
	for _, p := range j.pendings {
		if p.shard == nil {
			now = append(now, p)
		}
	}
	if len(now) > 0 {
		j.pendings = nil
	}
	j.mu.Unlock()
	if len(now) > 0 {
		Complete(now, nil)
	}
}

func (j *quickJournal) Start(bool) {
	j.mu.Lock()
	all := j.pendings
	j.pendings = nil
	j.mu.Unlock()
	Complete(all, nil)
}

func (j *quickJournal) Wait(p *Pending) error {
	j.Start(true)
	return p.Wait()
}

func (*quickJournal) Failed() error                                                             { return nil }
func (*quickJournal) Admit() error                                                              { return nil }
func (*quickJournal) Sent(ShardID, *engine.Entry)                                               {}
func (*quickJournal) Remembered(uint32, engine.Digest, engine.Digest, [16]byte, engine.Instant) {}
func (*quickJournal) Configured(uint32, string, driver.Config, bool, map[string]int64)          {}
func (*quickJournal) Reader(ShardID) engine.Reader                                              { return nil }
func (*quickJournal) Ride()                                                                     {}
func (j *quickJournal) Await(p *Pending)                                                        { j.pendings = append(j.pendings, p) }

// TestSendThatCompletesEarlyUnlocksItsShard repeats a send whose record is durable before
// StartSend goes on: the state of the send is in use by another send by then.
func TestSendThatCompletesEarlyUnlocksItsShard(t *testing.T) {
	b := New(Options{Journal: new(quickJournal)})
	q, err := b.OpenQueue(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	started := q.(completion.Queue)
	var round completion.Round
	completed, duplicates := 0, 0
	for range 2 {
		msgs := []driver.Outgoing{{Body: []byte("body"), DedupKey: "key"}}
		started.StartSend(&round, msgs, func(_ *completion.Round, sent []driver.Sent, err error) {
			completed++
			if err != nil {
				t.Error(err)
			} else if sent[0].Duplicate {
				duplicates++
			}
		})
	}
	if completed != 2 || duplicates != 1 {
		t.Errorf("%d sends are complete, %d of them duplicates; want 2 and 1", completed, duplicates)
	}
	for _, sh := range q.(*handle).shards {
		if !sh.mu.TryLock() {
			t.Fatal("the shard is still locked")
		}
		sh.mu.Unlock()
	}
}
