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

	"github.com/mailboxmq/mailbox/internal/proctest"
	"github.com/mailboxmq/mailbox/internal/redistest"
)

// startPair runs two daemons on one Redis Cluster. They have the same keys, as the
// operating guide says.
func startPair(t *testing.T) (pair [2]*daemon, args []string) {
	t.Helper()
	cluster := redistest.Cluster(t, redistest.Replicas(0), redistest.NodeTimeout(15*time.Second))
	args = []string{"--backend=redis://" + cluster.Nodes()[0].Addr(), "--max-attempts=1000", "--cap-cache-ttl=5s"}
	pair[0] = start(t, append(args, "--log-level=info")...)
	keys, err := os.ReadFile(filepath.Join(pair[0].dir, "keys"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "keys"), keys, 0o600); err != nil {
		t.Fatal(err)
	}
	pair[1] = startIn(t, dir, nil, append(args, "--log-level=info")...)
	return pair, args
}

// TestG1TwoDaemonsAreOneService sends at one daemon, by each protocol, and receives at
// the other, by each, and acks at the first what the other has handed out.
func TestG1TwoDaemonsAreOneService(t *testing.T) {
	t.Parallel() // it mostly waits
	pair, _ := startPair(t)
	ctx := t.Context()
	done := 0
	for here, there := range []int{1, 0} {
		for _, from := range surfaces {
			for _, to := range surfaces {
				topic := fmt.Sprintf("%d/%s/%s", here, from.name, to.name)
				sender, receiver := from.open(t, pair[here], pair[here].token), to.open(t, pair[there], pair[there].token)
				body := []byte("from " + topic)
				id, duplicate, err := sender.send(ctx, topic, "key", body)
				if err != nil || duplicate {
					t.Fatalf("%s: send: duplicate %v, %v", topic, duplicate, err)
				}
				again, duplicate, err := receiver.send(ctx, topic, "key", body)
				if err != nil || !duplicate || again != id {
					t.Errorf("%s: the same send at the other daemon: %s (first %s), duplicate %v, %v", topic, again, id, duplicate, err)
				}
				if _, _, err := receiver.send(ctx, topic, "key", []byte("other")); codeOf(err) != "E_DUPLICATE" {
					t.Errorf("%s: another body with the key at the other daemon: %v", topic, err)
				}
				got, err := receiver.receive(ctx, topic, wanted{most: 10, visibility: time.Minute})
				if err != nil || len(got) != 1 || got[0].id != id || string(got[0].body) != string(body) {
					t.Fatalf("%s: receive at the other daemon: %v, %v", topic, got, err)
				}
				if err := sender.ack(ctx, topic, got[0]); err != nil {
					t.Errorf("%s: the ack at the first daemon: %v", topic, err)
				}
				for _, d := range pair {
					if left := openHTTP(t, d.http, d.token).stats(t, topic); left != (counts{}) {
						t.Errorf("%s: after the ack there is %+v", topic, left)
					}
				}
				done++
			}
		}
	}
	t.Logf("%d ways across two daemons: sent at one, repeated and received at the other, acked at the first", done)
	revokeAcross(t, pair)
}

// ledger is what clients of a pair were told.
type ledger struct {
	mu        sync.Mutex
	confirmed map[string]string    // id by key
	keys      map[string]string    // key by id, of what was received
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

func (l *ledger) accuse(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wrong = append(l.wrong, fmt.Sprintf(format, args...))
}

// sent notes a send that was confirmed.
func (l *ledger) sent(key, id string) {
	l.mu.Lock()
	before := l.confirmed[key]
	l.confirmed[key] = id
	l.mu.Unlock()
	if before != "" && before != id {
		l.accuse("%s was confirmed as %s and as %s", key, before, id)
	}
}

// got notes a delivery of a receive that began at a time.
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
		l.unheard.Add(1) // a daemon died with the answer
	}
	if done && acked.Before(began) {
		l.accuse("%s was acked and came again", d.id)
	}
	if twice {
		l.accuse("%s has two deliveries with number %d", d.id, d.attempt)
	}
}

// settled notes an ack that was confirmed. One that is repeated is confirmed again.
func (l *ledger) settled(d delivery) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, already := l.acked[d.id]; !already {
		l.acked[d.id] = time.Now()
	}
}

// reach tries something at one daemon after the other until there is an answer.
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
// again and again. Clients go to the other one and repeat what was not answered: no
// confirmed message is lost, and what comes twice is a delivery that was not acked.
func TestG1EitherDaemonMayBeKilled(t *testing.T) {
	pair, args := startPair(t)
	kills := many(t, 6)
	book := newLedger()
	const topic = "orders"
	stop := make(chan struct{})
	var senders, receivers sync.WaitGroup
	draining, ctx := make(chan struct{}), t.Context()
	var clients [3][2]surface
	for i, s := range surfaces {
		clients[i] = [2]surface{s.open(t, pair[0], pair[0].token), s.open(t, pair[1], pair[0].token)}
	}
	first, _, err := clients[0][0].send(ctx, topic, "first", []byte("first")) // a receive would not create the queue
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
					id, _, err := s.send(ctx, topic, key, []byte(key))
					if err == nil {
						book.sent(key, id)
					}
					return err
				})
				if err != nil {
					book.accuse("send %s: %v", key, err)
				}
			}
		})
		receivers.Go(func() { book.consume(ctx, clients[n%3], clients[(n+1)%3], n, topic, draining) })
	}
	took := killInTurn(t, pair, args, kills)
	close(stop)
	senders.Wait()
	left := func() counts { return openHTTP(t, pair[0].http, pair[0].token).stats(t, topic) }
	proctest.Eventually(t, 60*time.Second, "worked off", func() bool { return left() == counts{} })
	close(draining)
	receivers.Wait()
	book.judge(t)
	t.Logf("%d kills in %v: %d messages confirmed, 0 lost, %d deliveries came again (%d were abandoned on purpose) and %d after one that died with a daemon, %d answers, %d calls without one",
		kills, took.Round(time.Millisecond), len(book.confirmed), book.redelivered.Load(), book.abandoned.Load(), book.unheard.Load(), book.answers.Load(), book.silence.Load())
}

// consume receives by one protocol at one daemon and acks by the next at the other.
func (l *ledger) consume(ctx context.Context, from, to [2]surface, n int, topic string, draining <-chan struct{}) {
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
			got, err = s.receive(ctx, topic, wanted{most: 4, visibility: 2 * time.Second, wait: 100 * time.Millisecond})
			return err
		})
		if err != nil {
			l.accuse("receive: %v", err)
		}
		for _, d := range got {
			l.got(d, began)
			if d.attempt == 1 && l.answers.Load()%64 == 0 {
				l.abandoned.Add(1) // as a consumer does that crashes
				continue
			}
			err := l.reach(ctx, to, i+1, func(s surface) error { return s.ack(ctx, topic, d) })
			switch codeOf(err) {
			case "":
				l.settled(d)
			case "E_NOT_FOUND": // its time was over, or an ack without an answer was done
			default:
				l.accuse("ack: %v", err)
			}
		}
	}
}

// killInTurn kills one daemon, starts it again, and goes on with the other.
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

// judge fails the test for what is missing or wrong.
func (l *ledger) judge(t *testing.T) {
	t.Helper()
	l.complain(t)
	l.mu.Lock()
	defer l.mu.Unlock()
	lost := 0
	for key, id := range l.confirmed {
		if l.keys[id] != key {
			if lost++; lost < 20 {
				t.Errorf("%s was confirmed as %s and never came (%q did)", key, id, l.keys[id])
			}
		}
	}
	for id, key := range l.keys {
		if l.confirmed[key] != id {
			t.Errorf("%s came as %s and was confirmed as %q: a send was done twice", key, id, l.confirmed[key])
		}
	}
	if len(l.confirmed) < 100 {
		t.Errorf("only %d messages were sent", len(l.confirmed))
	}
}

// complain fails the test for what was wrong at once.
func (l *ledger) complain(t *testing.T) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, wrong := range l.wrong {
		if i < 20 {
			t.Error(wrong)
		}
	}
}
