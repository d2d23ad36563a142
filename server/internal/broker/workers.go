package broker

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"hash/maphash"
	"net/netip"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
	"unique"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/share"
)

const (
	// MaxWorkerBytes bounds the name of a worker.
	MaxWorkerBytes = 128
	// WorkerKept is how long a worker is listed after it was last seen.
	WorkerKept = 5 * time.Minute
	// maxWorkers bounds the workers that are listed, of all tenants, each on each queue that it
	// receives from. One takes 600 bytes at most, so all take 2.5 MB.
	maxWorkers = 4096
	// MaxHeldShown bounds the messages that are listed for a worker.
	MaxHeldShown = 16
	// maxReports bounds the messages of a worker whose progress is kept. A report takes 256 bytes at
	// most, so those of all workers take 17 MB.
	maxReports = 16
)

// A Worker is a receiver of a queue that this daemon has seen lately.
type Worker struct {
	Queue string
	// Name is what the receiver calls itself, or what its protocol says about it. It may be empty.
	// Receivers choose it: it proves nothing.
	Name     string
	Protocol string
	// Address is the zero Addr if the client has none, as on a unix socket.
	Address netip.Addr
	Token   capability.TokenID
	// Since is when the worker was first seen, and Seen when it last received.
	Since, Seen time.Time
	// Waiting is how many receives wait for messages now.
	Waiting int
	// InFlight is how many messages the worker holds.
	InFlight int
	// Acked, Failed and Expired count the deliveries that ended since the worker was first seen:
	// acked, nacked or dead-lettered, and lost because their lease ended.
	Acked, Failed, Expired int
	// Held are the messages that the worker holds, those first that it has held for longest, and
	// MaxHeldShown at most.
	Held []Held
}

// AddressText returns the address; empty if the client has none.
func (w *Worker) AddressText() string {
	if !w.Address.IsValid() {
		return ""
	}
	return w.Address.String()
}

// Held is a message that a worker holds.
type Held struct {
	ID      string
	Attempt int
	TakenAt time.Time
	// Until is when the lease ends unless it is extended.
	Until time.Time
	// Progress is what the worker has reported about it; nil if it has reported nothing.
	Progress *Progress
}

// Progress is what the holder of a message has reported about its work on it.
type Progress struct {
	driver.Progress
	// At is when this broker first got the report.
	At time.Time
}

// A workerID is what tells workers of a queue apart.
type workerID struct {
	name, protocol string
	address        netip.Addr
	token          capability.TokenID
}

// A workerKey stands for a workerID in a map, where it takes a twelfth of its memory: most queues have
// one worker, and a map has room for eight. Two that are equal by chance are listed as one worker.
type workerKey uint64

var workerSeed = maphash.MakeSeed()

func (id *workerID) key() workerKey {
	var h maphash.Hash
	h.SetSeed(workerSeed)
	address := id.address.As16()
	// None of these fails.
	_, _ = h.Write(id.token[:])
	_, _ = h.Write(address[:])
	_, _ = h.WriteString(id.protocol)
	_, _ = h.WriteString(id.name)
	return workerKey(h.Sum64())
}

// A worker is a Worker of one queue. The queue's leaseTable guards its fields.
type worker struct {
	workerID
	interned               unique.Handle[string] // the name, which a worker has once however many queues it uses
	since, seen            time.Duration         // on the broker's clock
	waiting, held, reports int32
	acked, failed, expired int
}

// idle reports whether the worker was not seen lately and holds nothing.
func (w *worker) idle(now time.Duration) bool {
	return w.waiting == 0 && w.held == 0 && now-w.seen >= WorkerKept
}

// Named returns the same caller, whose receives are those of a worker with this name. Codes:
// ErrInvalid (the name is longer than MaxWorkerBytes, or has characters that cannot be printed).
func (c Caller) Named(name, protocol string) (Caller, error) {
	detail := ""
	switch {
	case len(name) > MaxWorkerBytes:
		detail = fmt.Sprintf("has %d bytes, at most %d are allowed", len(name), MaxWorkerBytes)
	case !utf8.ValidString(name):
		detail = "is not valid UTF-8"
	case strings.IndexFunc(name, unprintable) >= 0:
		detail = fmt.Sprintf("has characters that cannot be printed: %q", name)
	}
	if detail != "" {
		return c, &driver.Error{Code: driver.ErrInvalid, Op: "receive", Field: "worker", Detail: detail}
	}
	c.origin.Worker, c.origin.Protocol = name, protocol
	return c, nil
}

func unprintable(r rune) bool { return !unicode.IsPrint(r) }

// WorkerName makes a name of a text that was not meant as one, such as a User-Agent: what cannot be
// printed becomes a question mark, and what is too long is cut.
func WorkerName(said string) string {
	said = strings.Map(func(r rune) rune {
		if r == utf8.RuneError || unprintable(r) {
			return '?'
		}
		return r
	}, said[:min(len(said), 2*MaxWorkerBytes)])
	for len(said) > MaxWorkerBytes {
		_, last := utf8.DecodeLastRuneInString(said)
		said = said[:len(said)-last]
	}
	return said
}

func (c *Caller) workerID() workerID {
	return workerID{c.origin.Worker, c.origin.Protocol, c.origin.Client, c.holder.token}
}

// arrive notes that the caller receives from a queue, and returns its worker; nil if its share of the
// list is used up. The caller calls part when a wait has ended.
func (c *Caller) arrive(q *queue, waits bool, at time.Time) *worker {
	b, t, id := c.broker, &q.leases, c.workerID()
	key := id.key()
	now := at.Sub(b.start)
	if w := t.meet(key, waits, now); w != nil {
		return w
	}
	owner := c.owner()
	if b.workers.Take(owner[:], 1) != nil && (!b.sweep() || b.workers.Take(owner[:], 1) != nil) {
		return nil
	}
	t.mu.Lock()
	if t.workers == nil {
		t.workers = make(map[workerKey]*worker)
	}
	if _, known := t.workers[key]; known {
		b.workers.Give(owner[:], 1)
	} else {
		name := unique.Make(id.name)
		id.name = name.Value() // it was a part of a whole request, perhaps
		t.workers[key] = &worker{workerID: id, interned: name, since: now}
	}
	t.mu.Unlock()
	return t.meet(key, waits, now)
}

// meet returns a worker that is known, and notes that it receives.
func (t *leaseTable) meet(key workerKey, waits bool, now time.Duration) *worker {
	t.mu.Lock()
	defer t.mu.Unlock()
	w := t.workers[key]
	if w == nil {
		return nil
	}
	w.seen = now
	if waits {
		w.waiting++
	}
	return w
}

// part notes that a worker does not wait any more.
func (t *leaseTable) part(w *worker, now time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	w.waiting--
	w.seen = now
}

// forgetWorkersLocked removes the workers for which remove is true.
func (t *leaseTable) forgetWorkersLocked(remove func(*worker) bool) {
	for key, w := range t.workers {
		if remove(w) {
			delete(t.workers, key)
			owner := ownerOf(t.tenant, w.token)
			t.pools.workers.Give(owner[:], 1)
		}
	}
}

// forgetWorkers removes all workers: the queue is closed.
func (t *leaseTable) forgetWorkers() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.forgetWorkersLocked(func(*worker) bool { return true })
}

// How a lease ends, for the counts of its worker.
type leaseEnd uint8

const (
	endedOtherwise leaseEnd = iota
	endedAcked
	endedFailed
	endedExpired
)

// endedLease is the lease of a receipt, and how it ended.
type endedLease struct {
	receipt driver.Receipt
	how     leaseEnd
}

// Workers lists the receivers of a queue that this daemon has seen in the last WorkerKept, or that wait or hold
// messages, in the order of their names. It needs a token for stats; the messages that a worker holds are
// listed if the token allows peek too. Without a queue it lists those of all queues of the tenant that the
// token allows stats on, without the messages. It does no I/O. A queue that does not exist has no workers. Receivers at other daemons
// on the same backend, and programs that use the backend directly, are unknown here.
func (c Caller) Workers(ctx context.Context, queue string) ([]Worker, error) {
	b := c.broker
	if queue == "" {
		return c.allWorkers(ctx)
	}
	if _, err := c.authorize(ctx, capability.OpStats, queue); err != nil {
		return nil, err
	}
	key := queueKey{c.tenant, queue}
	q := b.queues.find(key)
	if q == nil {
		return nil, nil
	}
	return b.workersOf(nil, q, c.Allows(ctx, capability.OpPeek, queue)), nil
}

// allWorkers is Workers of all queues.
func (c *Caller) allWorkers(ctx context.Context) (all []Worker, err error) {
	if err := c.Valid(ctx); err != nil {
		return nil, err
	}
	queues := slices.DeleteFunc(c.broker.queues.all(), func(q *queue) bool { return q.tenant != c.tenant })
	slices.SortFunc(queues, func(x, y *queue) int { return cmp.Compare(x.name, y.name) })
	for _, q := range queues {
		if q.leases.hasWorkers() && c.Allows(ctx, capability.OpStats, q.name) {
			all = c.broker.workersOf(all, q, false)
		}
	}
	return all, nil
}

func (t *leaseTable) hasWorkers() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.workers) > 0
}

// workersOf appends the workers of a queue.
func (b *Broker) workersOf(all []Worker, q *queue, held bool) []Worker {
	now := b.now()
	t := &q.leases
	t.expire(now)
	t.mu.Lock()
	defer t.mu.Unlock()
	first := len(all)
	byWorker := make(map[*worker]int, len(t.workers))
	for _, w := range t.workers {
		byWorker[w] = len(all)
		all = append(all, Worker{
			Queue: q.name, Name: w.name, Protocol: w.protocol, Address: w.address, Token: w.token, Since: b.start.Add(w.since), Seen: b.start.Add(w.seen),
			Waiting: int(w.waiting), InFlight: int(w.held), Acked: w.acked, Failed: w.failed, Expired: w.expired,
		})
	}
	if held {
		for id, l := range t.byID {
			if i, ok := byWorker[l.worker]; ok {
				all[i].hold(Held{ID: id, Attempt: l.attempt, TakenAt: l.takenAt, Until: b.start.Add(l.deadline), Progress: l.progress})
			}
		}
	}
	slices.SortFunc(all[first:], func(x, y Worker) int {
		return cmp.Or(strings.Compare(x.Name, y.Name), strings.Compare(x.Protocol, y.Protocol), x.Address.Compare(y.Address), bytes.Compare(x.Token[:], y.Token[:]))
	})
	return all
}

// hold adds a message to those that were held for longest.
func (w *Worker) hold(held Held) {
	at, _ := slices.BinarySearchFunc(w.Held, held, func(x, y Held) int {
		return cmp.Or(x.TakenAt.Compare(y.TakenAt), strings.Compare(x.ID, y.ID))
	})
	if at == MaxHeldShown {
		return
	}
	if len(w.Held) == MaxHeldShown {
		w.Held = w.Held[:MaxHeldShown-1]
	}
	w.Held = slices.Insert(w.Held, at, held)
}

// newWorkerPool divides the list of workers by tenant and token.
func newWorkerPool() *share.Pool { return share.New("workers", "max_workers", maxWorkers, WorkerKept) }
