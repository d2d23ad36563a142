package redisbox

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/redistest"
	"github.com/mailboxmq/mailbox/redisbox/internal/shard"
)

// holdFirst makes a proxy hold the first call of a script until release is called.
func holdFirst(proxy *redistest.Proxy, sc *shard.Script, matches func(args []string) bool) (held <-chan struct{}, release func()) {
	reached, goOn := make(chan struct{}), make(chan struct{})
	var armed atomic.Bool
	armed.Store(true)
	proxy.OnRequest(func(args []string) redistest.Action {
		if len(args) > 1 && (args[1] == sc.Sha || args[1] == sc.Text) && matches(args) && armed.Swap(false) {
			close(reached)
			<-goOn
		}
		return redistest.Pass
	})
	return reached, func() { close(goOn) }
}

// DUP-1: two senders use the same key for the same message concurrently, and one of them
// is slow between two steps.
func TestTwoSendersOfOneKeyMakeOneMessage(t *testing.T) {
	t.Parallel()
	server := redistest.SharedServer(t)
	prefix := redistest.Prefix(t)
	proxy := redistest.NewProxy(t, server.Addr())
	fast := configured(t, open(t, connect(t, server.ClientOption()), &Options{Prefix: prefix}), driver.Config{Shards: 8})
	slow := openQueue(t, open(t, connect(t, through(server, proxy)), &Options{Prefix: prefix}))
	msg, _ := apart(fast, "a")

	c := claimFor(t, fast, &msg) // the fast one has claimed
	held, release := holdFirst(proxy, shard.BatchScript, func([]string) bool { return true })
	type outcome struct {
		sent []driver.Sent
		err  error
	}
	done := make(chan outcome, 1)
	go func() {
		sent, err := slow.Send(t.Context(), []driver.Outgoing{msg})
		done <- outcome{sent, err}
	}()
	<-held // the slow one has seen the claim, and is about to send
	extra := fast.Special(&msg)
	extra.Key, extra.BodyHash, extra.Arrival = "", "", true
	if code, detail, err := c.send(t.Context(), &msg, extra); err != nil || (code != 's' && code != 'd') {
		t.Fatalf("fast: %q %q %v", code, detail, err)
	}
	got := receive(t, fast, 1, hold)
	if err := fast.Ack(t.Context(), []driver.Receipt{got[0].Receipt}); err != nil {
		t.Fatal(err)
	}
	release()
	if o := <-done; o.err != nil || !o.sent[0].Duplicate {
		t.Errorf("slow: %+v, %v; want a duplicate", o.sent, o.err)
	}
	wantStats(t, fast, driver.Stats{})
}

// DLQ-8, forward.go: "none arrives twice". Two processes forward the same dead letter.
func TestTwoForwardersDeliverOneDeadLetter(t *testing.T) {
	t.Parallel()
	server := redistest.SharedServer(t)
	prefix := redistest.Prefix(t)
	proxy := redistest.NewProxy(t, server.Addr())
	here := open(t, connect(t, server.ClientOption()), &Options{Prefix: prefix})
	q := configured(t, here, driver.Config{DeadLetterTo: "dlq"})
	slow := openQueue(t, open(t, connect(t, through(server, proxy)), &Options{Prefix: prefix}))
	send(t, slow, "a")
	got := receive(t, slow, 1, hold)
	dlqMeta := shard.Tag(prefix, "dlq", 0) + "meta"
	held, release := holdFirst(proxy, shard.BatchScript, func(args []string) bool { return args[3] == dlqMeta })
	done := make(chan error, 1)
	go func() {
		done <- slow.DeadLetter(t.Context(), []driver.DeadLetterRequest{{Receipt: got[0].Receipt, Reason: driver.ReasonFatal}})
	}()
	<-held // the slow one is about to move the dead letter; the other moves it first
	wantStats(t, q, driver.Stats{})
	release()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	dlq, err := here.OpenQueue(t.Context(), "dlq")
	if err != nil {
		t.Fatal(err)
	}
	defer dlq.Close()
	wantStats(t, dlq, driver.Stats{Ready: 1})
}

// DUP-1: a refused sender releases a claim that another sender has used.
func TestRefusedSenderKeepsOtherSendersKey(t *testing.T) {
	t.Parallel()
	server := redistest.SharedServer(t)
	b := open(t, connect(t, server.ClientOption()), &Options{Prefix: redistest.Prefix(t)})
	q := configured(t, b, driver.Config{Shards: 8, MaxMessages: 8})
	msg, _ := apart(q, "a")
	target := q.ShardOf(msg.Group)
	sendOne(t, q, driver.Outgoing{Body: []byte("filler"), Group: msg.Group}) // its shard is full
	extra := q.Special(&msg)
	first := claimFor(t, q, &msg)
	second := &claim{home: first.home, target: target, key: first.key, bodyHash: first.bodyHash, id: target.NewID()}
	if code, detail, err := second.step(t.Context(), "c"); err != nil || code != 'u' {
		t.Fatalf("%q %q %v", code, detail, err)
	}
	extra.Key, extra.BodyHash, extra.Arrival = "", "", true
	put := func() string {
		part := shard.NewSendOp(t.Context(), target)
		part.Add(0, first.id, &msg, extra)
		if err := target.RunBatch(t.Context(), &shard.Batch{Sends: []*shard.SendOp{part}}, b.server.Durable(&shard.Session{})); err != nil {
			t.Fatal(err)
		}
		return part.Codes
	}
	if put() != "f" { // the first is refused, and about to release
		t.Fatal("not full")
	}
	got := receive(t, q, 1, hold)
	if err := q.Ack(t.Context(), []driver.Receipt{got[0].Receipt}); err != nil {
		t.Fatal(err)
	}
	if codes := put(); codes != "" { // the second finds room
		t.Fatal(codes)
	}
	if _, _, err := first.step(t.Context(), "r"); err != nil {
		t.Fatal(err)
	}
	second.id = first.id
	if err := second.confirm(t.Context(), target); err != nil {
		t.Fatal(err)
	}
	got = receive(t, q, 1, hold)
	if err := q.Ack(t.Context(), []driver.Receipt{got[0].Receipt}); err != nil {
		t.Fatal(err)
	}
	if again := sendOne(t, q, msg); !again.Duplicate {
		t.Errorf("the key was forgotten: %+v", again)
	}
}

// A queue on a healthy server works although the server of the queue that its dead
// letters go to hangs.
func TestHangingTargetDoesNotBlockSource(t *testing.T) {
	t.Parallel()
	cluster := redistest.Cluster(t, redistest.Primaries(3), redistest.Replicas(0),
		redistest.NodeTimeout(time.Minute), redistest.Config("cluster-require-full-coverage", "no"))
	b := open(t, connect(t, cluster.ClientOption()), nil)
	home, err := cluster.PrimaryOf(t.Context(), shard.Tag("", "orders", 0)+"meta")
	if err != nil {
		t.Fatal(err)
	}
	target, dlq := home, ""
	for i := 0; target == home; i++ {
		dlq = fmt.Sprint("dlq", i)
		if target, err = cluster.PrimaryOf(t.Context(), shard.Tag("", dlq, 0)+"meta"); err != nil {
			t.Fatal(err)
		}
	}
	q := configured(t, b, driver.Config{DeadLetterTo: dlq})
	send(t, q, "1", "2", "3", "4", "5", "6", "7", "8", "9", "10")
	got := receive(t, q, 10, hold)
	next := func() (receipt driver.Receipt) {
		receipt, got = got[0].Receipt, got[1:]
		return receipt
	}
	target.Stop()
	defer target.Continue()
	for what, do := range map[string]func() error{
		"dead-lettering": func() error {
			return q.DeadLetter(t.Context(), []driver.DeadLetterRequest{{Receipt: next(), Reason: driver.ReasonFatal}})
		},
		"an ack": func() error { return q.Ack(t.Context(), []driver.Receipt{next()}) },
		"a send": func() error { _, err := q.Send(t.Context(), []driver.Outgoing{{}}); return err },
	} {
		takesLess(t, shard.MaxAttempt-time.Second, what, func() {
			if err := do(); err != nil {
				t.Errorf("%s: %v", what, err)
			}
		})
	}
}
