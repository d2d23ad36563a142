package redisbox

import (
	"bytes"
	"context"
	"runtime/pprof"
	"strings"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/redistest"
	"github.com/mailboxmq/mailbox/redisbox/internal/shard"
)

// waiting starts a receive with a long wait, and returns when it waits.
func waiting(t testing.TB, q *handle) <-chan []driver.Delivery {
	t.Helper()
	done := make(chan []driver.Delivery, 1)
	before := q.waiters.Len()
	go func() {
		got, err := q.Receive(t.Context(), driver.ReceiveRequest{Max: 1, Visibility: hold, Wait: time.Minute})
		if err != nil && t.Context().Err() == nil {
			t.Error(err)
		}
		done <- got
	}()
	eventually(t, "the receiver waits", func() bool { return q.waiters.Len() > before && q.subscribed() })
	pause(50 * time.Millisecond) // until it has looked
	return done
}

// soon is how long waking may take on a very busy machine. Without a signal it would take
// shard.FallbackInterval, which is longer.
const soon = 20 * time.Second

// wantWoken checks that a waiting receive gets a message soon.
func wantWoken(t testing.TB, done <-chan []driver.Delivery, body string) {
	t.Helper()
	select {
	case got := <-done:
		if len(got) != 1 || string(got[0].Body) != body {
			t.Fatalf("the waiting receiver got %d messages, want %q", len(got), body)
		}
	case <-time.After(soon):
		t.Fatalf("the waiting receiver was not woken within %v", soon)
	}
}

func TestSendInOtherProcessWakesReceiver(t *testing.T) {
	t.Parallel()
	for name, option := range topologies(t) {
		t.Run(name, func(t *testing.T) {
			prefix := redistest.Prefix(t)
			here := openQueue(t, open(t, connect(t, option), &Options{Prefix: prefix}))
			there := openQueue(t, open(t, connect(t, option), &Options{Prefix: prefix}))
			for range 5 {
				done := waiting(t, here)
				send(t, there, "a")
				wantWoken(t, done, "a")
			}
		})
	}
}

// TestManyProcessesShareTheWork: one send wakes waiting receivers in any process, and of
// several receivers in several processes each gets one message.
func TestManyProcessesShareTheWork(t *testing.T) {
	server := redistest.SharedServer(t)
	prefix := redistest.Prefix(t)
	var done []<-chan []driver.Delivery
	for range 3 {
		q := openQueue(t, open(t, connect(t, server.ClientOption()), &Options{Prefix: prefix}))
		for range 3 {
			done = append(done, waiting(t, q))
		}
	}
	sender := openQueue(t, open(t, connect(t, server.ClientOption()), &Options{Prefix: prefix}))
	for range done {
		send(t, sender, "a")
	}
	for _, d := range done {
		wantWoken(t, d, "a")
	}
}

func TestLostAnnouncementIsRecovered(t *testing.T) {
	server := redistest.SharedServer(t)
	proxy := redistest.NewProxy(t, server.Addr())
	prefix := redistest.Prefix(t)
	here := openQueue(t, open(t, connect(t, through(server, proxy)), &Options{Prefix: prefix}))
	there := openQueue(t, open(t, connect(t, server.ClientOption()), &Options{Prefix: prefix}))
	done := waiting(t, here)
	proxy.Refuse(true)
	proxy.Cut()
	eventually(t, "the connection is gone", func() bool { return proxy.Connections() == 0 })
	send(t, there, "a") // its announcement is lost
	proxy.Refuse(false)
	wantWoken(t, done, "a")
}

func TestDeadlineFromOtherProcessWakesReceiver(t *testing.T) {
	server := redistest.SharedServer(t)
	prefix := redistest.Prefix(t)
	here := openQueue(t, open(t, connect(t, server.ClientOption()), &Options{Prefix: prefix}))
	there := openQueue(t, open(t, connect(t, server.ClientOption()), &Options{Prefix: prefix}))
	done := waiting(t, here)
	if _, err := there.Send(t.Context(), []driver.Outgoing{{Body: []byte("late"), Delay: 300 * time.Millisecond}}); err != nil {
		t.Fatal(err)
	}
	wantWoken(t, done, "late")
}

// TestWaitingSendsNoCommands: while no message comes, a waiting receiver sends less than
// one command a second.
func TestWaitingSendsNoCommands(t *testing.T) {
	t.Parallel()
	server := redistest.Standalone(t)
	option := server.ClientOption()
	option.Dialer.KeepAlive = time.Minute // the client's own pings come this often
	q := openQueue(t, open(t, connect(t, option), nil))
	done := waiting(t, q)
	pause(200 * time.Millisecond)
	before := redistest.CommandCount(t, server)
	const seconds = 4
	pause(seconds * time.Second)
	if n := redistest.CommandCount(t, server) - before; n >= seconds {
		t.Errorf("%d commands in %d seconds, want less than one a second", n, seconds)
	}
	send(t, q, "a")
	wantWoken(t, done, "a")
}

// ours counts the goroutines of this package.
func ours(t testing.TB) int {
	t.Helper()
	var stacks bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&stacks, 2); err != nil {
		t.Fatal(err)
	}
	n := 0
	for stack := range strings.SplitSeq(stacks.String(), "\n\n") {
		if strings.Contains(stack, "redisbox.(*shardWatcher)") || strings.Contains(stack, "redisbox.(*batcher)") {
			n++
		}
	}
	return n
}

func TestIdleSendersRunNoGoroutine(t *testing.T) {
	b := open(t, connect(t, redistest.SharedServer(t).ClientOption()), &Options{Prefix: redistest.Prefix(t)})
	before := ours(t)
	for _, name := range []string{"a", "b", "c", "d"} {
		q, err := b.OpenQueue(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		send(t, q, "x")
		wantStats(t, q, driver.Stats{Ready: 1})
	}
	eventually(t, "the calls end", func() bool { return ours(t) <= before })

	q := openQueue(t, b)
	wantNothing(t, q)
	if ours(t) <= before {
		t.Error("a process that receives does not watch the queue")
	}
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the watching ends with the last handle", func() bool { return ours(t) <= before })
}

// TestWatcherAdvancesShardWithoutCalls: in a process that has received, leases and delays
// end on time although no call comes in.
func TestWatcherAdvancesShardWithoutCalls(t *testing.T) {
	server := redistest.SharedServer(t)
	client := connect(t, server.ClientOption())
	b := open(t, client, &Options{Prefix: redistest.Prefix(t)})
	q := configured(t, b, driver.Config{MaxDeliveries: 1})
	send(t, q, "a")
	receive(t, q, 1, 200*time.Millisecond)
	eventually(t, "the message is dead-lettered", func() bool {
		n, err := client.Do(t.Context(), client.B().Zcard().Key(keyOf(q, "dead")).Build()).AsInt64()
		return err == nil && n == 1
	})
}

// TestSendTakesWaitingReceiveAlong: a message reaches a receive of the same process in the call that sends it.
func TestSendTakesWaitingReceiveAlong(t *testing.T) {
	server := redistest.SharedServer(t)
	proxy := redistest.NewProxy(t, server.Addr())
	q := openQueue(t, open(t, connect(t, through(server, proxy)), &Options{Prefix: redistest.Prefix(t)}))
	scripts := countScripts(proxy)
	eventually(t, "a send and a receive are one script", func() bool {
		done := waiting(t, q)
		scripts()
		send(t, q, "a")
		wantWoken(t, done, "a")
		return scripts() == 1 // more if the shard watcher looks meanwhile
	})
}

// TestReceiveWaitsOnAfterFailedSend: a receive that a failed call has taken along gets the next message.
func TestReceiveWaitsOnAfterFailedSend(t *testing.T) {
	b := newFailingServer(t)
	done := waiting(t, b.handle)
	b.failNext("ERR no", 1)
	if _, err := b.Send(t.Context(), []driver.Outgoing{{Body: []byte("lost")}}); err == nil {
		t.Fatal("the send has not failed")
	}
	send(t, b, "a")
	wantWoken(t, done, "a")
}

// TestCancelledReceiveGivesBackWhatSendBrings: a receive that is cancelled during a call that has taken it
// along returns the message, or leaves it ready.
func TestCancelledReceiveGivesBackWhatSendBrings(t *testing.T) {
	server := redistest.SharedServer(t)
	proxy := redistest.NewProxy(t, server.Addr())
	q := openQueue(t, open(t, connect(t, through(server, proxy)), &Options{Prefix: redistest.Prefix(t)}))
	send(t, q, "the scripts are loaded")
	receive(t, q, 1, hold)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan int, 1)
	go func() {
		got, _ := q.Receive(ctx, driver.ReceiveRequest{Max: 1, Visibility: hold, Wait: time.Minute})
		done <- len(got)
	}()
	eventually(t, "the receiver waits", func() bool { return q.waiters.Len() > 0 && q.subscribed() })
	pause(50 * time.Millisecond) // until it has looked
	held, release := holdFirst(proxy, shard.BatchScript, func([]string) bool { return true })
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		send(t, q, "a")
	}()
	<-held
	cancel()
	got := 0
	select {
	case got = <-done: // after cancelGrace
	case <-time.After(soon):
		t.Fatal("the cancelled receive has not returned")
	}
	release()
	<-sent
	if got > 0 {
		t.Fatalf("got %d messages before they were sent", got)
	}
	eventually(t, "the message is ready again", func() bool {
		stats, err := q.Stats(t.Context())
		return err == nil && stats == driver.Stats{Ready: 1, InFlight: 1}
	})
}
