package gates_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/internal/testing/proctest"
	"github.com/mailboxmq/mailbox/internal/testing/redistest"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
)

// startPair runs two daemons on one Redis Cluster. They have the same keys, as the
// operating guide demands.
func startPair(t *testing.T) (pair [2]*daemon, args []string) {
	t.Helper()
	cluster := redistest.Cluster(t, redistest.Replicas(0), redistest.NodeTimeout(15*time.Second))
	args = []string{"--backend=redis://" + cluster.Nodes()[0].Addr(), "--max-attempts=1000", "--cap-cache-ttl=5s"}
	pair[0] = start(t, append(args, "--log-level=info")...)
	pair[1] = startIn(t, dirWithKeysOf(t, pair[0]), nil, append(args, "--log-level=info")...)
	return pair, args
}

// dirWithKeysOf returns a data directory for a daemon that has the keys of another.
func dirWithKeysOf(t testing.TB, d *daemon) string {
	t.Helper()
	dir := t.TempDir()
	keys, err := os.ReadFile(filepath.Join(d.dir, "keys"))
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "keys"), keys, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestG1TwoDaemonsAreOneService sends at one daemon, over each protocol, and receives at
// the other, over each, and acks the deliveries at the first.
func TestG1TwoDaemonsAreOneService(t *testing.T) {
	t.Parallel() // mostly waits
	pair, _ := startPair(t)
	ctx := t.Context()
	done := 0
	for here, there := range []int{1, 0} {
		for _, from := range surfaces {
			for _, to := range surfaces {
				queue := fmt.Sprintf("%d/%s/%s", here, from.name, to.name)
				sender, receiver := from.open(t, pair[here], pair[here].token), to.open(t, pair[there], pair[there].token)
				body := []byte("from " + queue)
				id, duplicate, err := sender.send(ctx, queue, "key", body)
				if err != nil || duplicate {
					t.Fatalf("%s: send: duplicate %v, %v", queue, duplicate, err)
				}
				again, duplicate, err := receiver.send(ctx, queue, "key", body)
				if err != nil || !duplicate || again != id {
					t.Errorf("%s: the same send at the other daemon: %s (first %s), duplicate %v, %v", queue, again, id, duplicate, err)
				}
				if _, _, err := receiver.send(ctx, queue, "key", []byte("other")); codeOf(err) != "E_DUPLICATE" {
					t.Errorf("%s: another body with the key at the other daemon: %v", queue, err)
				}
				got, err := receiver.receive(ctx, queue, wanted{most: 10, visibility: time.Minute})
				if err != nil || len(got) != 1 || got[0].id != id || string(got[0].body) != string(body) {
					t.Fatalf("%s: receive at the other daemon: %v, %v", queue, got, err)
				}
				if err := sender.ack(ctx, queue, got[0]); err != nil {
					t.Errorf("%s: the ack at the first daemon: %v", queue, err)
				}
				for _, d := range pair {
					if left := openHTTP(t, d.http, d.token).stats(t, queue); left != (counts{}) {
						t.Errorf("%s: after the ack there is %+v", queue, left)
					}
				}
				done++
			}
		}
	}
	t.Logf("%d combinations of protocols across two daemons: sent at one, repeated and received at the other, acked at the first", done)
	revokeAcross(t, pair)
}

// A ledger records the answers that clients of a pair got.
type ledger struct {
	mu        sync.Mutex
	confirmed map[string]string    // id by key
	keys      map[string]string    // key by id, of received messages
	delivered map[string][]int     // numbers of deliveries by id
	acked     map[string]time.Time // when the ack was confirmed
	wrong     []string

	answers, silence, redelivered, abandoned, unheard atomic.Int64
}

func newLedger() *ledger {
	return &ledger{
		confirmed: make(map[string]string), keys: make(map[string]string),
		delivered: make(map[string][]int), acked: make(map[string]time.Time),
	}
}

func (l *ledger) errorf(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wrong = append(l.wrong, fmt.Sprintf(format, args...))
}

// sent records a confirmed send.
func (l *ledger) sent(key, id string) {
	l.mu.Lock()
	before := l.confirmed[key]
	l.confirmed[key] = id
	l.mu.Unlock()
	if before != "" && before != id {
		l.errorf("%s was confirmed as %s and as %s", key, before, id)
	}
}

// got records a delivery of a receive that began at the given time.
func (l *ledger) got(d delivery, began time.Time) {
	l.mu.Lock()
	again, twice := len(l.delivered[d.id]) > 0, slices.Contains(l.delivered[d.id], d.attempt)
	l.delivered[d.id] = append(l.delivered[d.id], d.attempt)
	acked, done := l.acked[d.id]
	l.keys[d.id] = string(d.body)
	l.mu.Unlock()
	if again {
		l.redelivered.Add(1)
	} else if d.attempt > 1 {
		l.unheard.Add(1) // a daemon was killed before it answered
	}
	if done && acked.Before(began) {
		l.errorf("%s was acked and delivered again", d.id)
	}
	if twice {
		l.errorf("%s has two deliveries with number %d", d.id, d.attempt)
	}
}

// settled records a confirmed ack. A repeated ack is confirmed again.
func (l *ledger) settled(d delivery) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, already := l.acked[d.id]; !already {
		l.acked[d.id] = time.Now()
	}
}

// reach calls try with one daemon after the other until one answers.
func (l *ledger) reach(ctx context.Context, clients [2]surface, first int, try func(s surface) error) error {
	for at := first; ; at++ {
		err := try(clients[at%2])
		if code := codeOf(err); err == nil || (code != "" && code != "E_UNAVAILABLE") || ctx.Err() != nil {
			l.answers.Add(1)
			return err
		}
		l.silence.Add(1)
		pause(5 * time.Millisecond)
	}
}

// TestG1EitherDaemonMayBeKilled kills the two daemons in turn with kill -9 under load,
// repeatedly. Clients switch to the other one and repeat requests without an answer: no
// confirmed message is lost, and only deliveries that were not acked come again.
func TestG1EitherDaemonMayBeKilled(t *testing.T) {
	pair, args := startPair(t)
	kills := volume.Count(t, 6, 50)
	book := newLedger()
	const queue = "orders"
	stop := make(chan struct{})
	var senders, receivers sync.WaitGroup
	draining, ctx := make(chan struct{}), t.Context()
	var clients [3][2]surface
	for i, s := range surfaces {
		clients[i] = [2]surface{s.open(t, pair[0], pair[0].token), s.open(t, pair[1], pair[0].token)}
	}
	first, _, err := clients[0][0].send(ctx, queue, "first", []byte("first")) // a receive would not create the queue
	if err != nil {
		t.Fatal(err)
	}
	book.sent("first", first)
	for n := range 6 {
		senders.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				key := fmt.Sprintf("%d-%d", n, i)
				err := book.reach(ctx, clients[n%3], n+i, func(s surface) error {
					id, _, err := s.send(ctx, queue, key, []byte(key))
					if err == nil {
						book.sent(key, id)
					}
					return err
				})
				if err != nil {
					book.errorf("send %s: %v", key, err)
				}
			}
		})
		receivers.Go(func() { book.consume(ctx, clients[n%3], clients[(n+1)%3], n, queue, draining) })
	}
	took := killInTurn(t, pair, args, kills)
	proctest.Eventually(t, 5*time.Minute, "100 messages sent", func() bool {
		book.mu.Lock()
		defer book.mu.Unlock()
		return len(book.confirmed) >= 100
	})
	close(stop)
	senders.Wait()
	left := func() counts { return openHTTP(t, pair[0].http, pair[0].token).stats(t, queue) }
	proctest.Eventually(t, 5*time.Minute, "worked off", func() bool { return left() == counts{} })
	close(draining)
	receivers.Wait()
	book.checkComplete(t)
	t.Logf("%d kills in %v: %d messages confirmed, 0 lost, %d deliveries came again (%d were abandoned on purpose) and %d after one that died with a daemon, %d answers, %d calls without one",
		kills, took.Round(time.Millisecond), len(book.confirmed), book.redelivered.Load(), book.abandoned.Load(), book.unheard.Load(), book.answers.Load(), book.silence.Load())
}

// consume receives over one protocol at one daemon and acks over the next at the other.
func (l *ledger) consume(ctx context.Context, from, to [2]surface, n int, queue string, draining <-chan struct{}) {
	for i := n; ; i++ {
		select {
		case <-draining:
			return
		default:
		}
		var got []delivery
		var began time.Time
		err := l.reach(ctx, from, i, func(s surface) (err error) {
			began = time.Now()
			got, err = s.receive(ctx, queue, wanted{most: 4, visibility: 2 * time.Second, wait: 100 * time.Millisecond})
			return err
		})
		if err != nil {
			l.errorf("receive: %v", err)
		}
		for _, d := range got {
			l.got(d, began)
			if d.attempt == 1 && l.answers.Load()%64 == 0 {
				l.abandoned.Add(1) // like a consumer that crashes
				continue
			}
			err := l.reach(ctx, to, i+1, func(s surface) error { return s.ack(ctx, queue, d) })
			switch codeOf(err) {
			case "":
				l.settled(d)
			case "E_NOT_FOUND": // its lease had expired, or an ack without an answer was done
			default:
				l.errorf("ack: %v", err)
			}
		}
	}
}

// killInTurn kills one daemon, restarts it, and continues with the other.
func killInTurn(t *testing.T, pair [2]*daemon, args []string, kills int) time.Duration {
	t.Helper()
	began := time.Now()
	for k := range kills {
		pause(500 * time.Millisecond)
		pair[k%2].Kill()
		pause(200 * time.Millisecond)
		pair[k%2] = pair[k%2].again(append(args, "--log-level=info")...)
	}
	return time.Since(began)
}

// checkComplete fails the test for lost and repeated messages.
func (l *ledger) checkComplete(t *testing.T) {
	t.Helper()
	l.reportErrors(t)
	l.mu.Lock()
	defer l.mu.Unlock()
	lost := 0
	for key, id := range l.confirmed {
		if l.keys[id] != key {
			if lost++; lost < 20 {
				t.Errorf("%s was confirmed as %s and never delivered (%q was)", key, id, l.keys[id])
			}
		}
	}
	for id, key := range l.keys {
		if l.confirmed[key] != id {
			t.Errorf("%s was delivered as %s and confirmed as %q: a send was done twice", key, id, l.confirmed[key])
		}
	}
}

// reportErrors fails the test for the recorded errors.
func (l *ledger) reportErrors(t *testing.T) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, wrong := range l.wrong {
		if i < 20 {
			t.Error(wrong)
		}
	}
}
