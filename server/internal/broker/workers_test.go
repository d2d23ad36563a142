package broker_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

// named returns the caller as a worker.
func named(t testing.TB, c broker.Caller, name string) broker.Caller {
	t.Helper()
	c, err := c.Named(name, "test")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// listed returns what the caller sees of the workers of a queue.
func listed(t testing.TB, c broker.Caller, queue string) string {
	t.Helper()
	workers, err := c.Workers(t.Context(), queue)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, w := range workers {
		lines = append(lines, fmt.Sprintf("%s/%s waits %d holds %d/%d acked %d failed %d expired %d", w.Queue, w.Name, w.Waiting, w.InFlight, len(w.Held), w.Acked, w.Failed, w.Expired))
	}
	return strings.Join(lines, "; ")
}

func expectWorkers(t testing.TB, c broker.Caller, queue, want string) {
	t.Helper()
	if got := listed(t, c, queue); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestWorkersShowWhatTheyHold is CON-2: who receives from which queue, and what became of it.
func TestWorkersShowWhatTheyHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory(t, broker.Limits{})
		c := b.as("")
		worker := named(t, c, "w-1")
		receive := func(n int) []broker.Delivery {
			got, err := worker.Receive(t.Context(), "jobs", driver.ReceiveRequest{Max: n, Visibility: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			return got
		}
		for i := range 6 {
			b.send(c, "jobs", fmt.Sprint(i))
		}
		expectWorkers(t, c, "jobs", "")
		got := receive(5)
		expectWorkers(t, c, "jobs", "jobs/w-1 waits 0 holds 5/5 acked 0 failed 0 expired 0")
		time.Sleep(10 * time.Second)
		got = append(got, receive(9)...)
		workers, err := c.Workers(t.Context(), "jobs")
		if err != nil || len(workers) != 1 || len(workers[0].Held) != 6 {
			t.Fatalf("%+v, %v", workers, err)
		}
		w := workers[0]
		if since, held := time.Since(w.Since), time.Since(w.Held[0].TakenAt); since != 10*time.Second || held != 10*time.Second || time.Since(w.Seen) != 0 {
			t.Errorf("it is known for %v, holds its first message for %v and was seen %v ago", since, held, time.Since(w.Seen))
		}
		if last := w.Held[5]; last.ID != got[5].ID || time.Until(last.Until) != time.Minute || last.Attempt != 1 || w.Token != c.TokenID() {
			t.Errorf("%+v", w)
		}
		// By another worker: what counts is which one took the delivery.
		err = errors.Join(c.Ack(t.Context(), "jobs", []string{got[0].Receipt}),
			c.Nack(t.Context(), "jobs", []broker.Nack{{Receipt: got[1].Receipt, Delay: time.Hour}, {Receipt: got[2].Receipt, Mode: driver.NackRelease}}),
			c.DeadLetter(t.Context(), "jobs", []broker.DeadLetterRequest{{Receipt: got[3].Receipt, Reason: driver.ReasonFatal}}))
		if err != nil {
			t.Fatal(err)
		}
		expectWorkers(t, c, "jobs", "jobs/w-1 waits 0 holds 2/2 acked 1 failed 2 expired 0")
		time.Sleep(2 * time.Minute)
		expectWorkers(t, c, "jobs", "jobs/w-1 waits 0 holds 0/0 acked 1 failed 2 expired 2")
		time.Sleep(broker.WorkerKept)
		expectWorkers(t, c, "jobs", "")
		if shares := fmt.Sprint(b.Shares()); !strings.Contains(shares, "{workers 0 ") {
			t.Errorf("the list keeps room: %s", shares)
		}
	})
}

func TestWorkersThatWaitAreListedWhileTheyDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory(t, broker.Limits{})
		c := b.as("")
		if err := c.Configure(t.Context(), "jobs", driver.Config{}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var waits sync.WaitGroup
		for range 2 {
			waits.Go(func() {
				_, _ = named(t, c, "w-1").Receive(ctx, "jobs", driver.ReceiveRequest{Max: 1, Visibility: time.Minute, Wait: time.Hour})
			})
		}
		synctest.Wait()
		expectWorkers(t, c, "jobs", "jobs/w-1 waits 2 holds 0/0 acked 0 failed 0 expired 0")
		time.Sleep(2 * broker.WorkerKept)
		b.send(c, "jobs", "x")
		synctest.Wait()
		expectWorkers(t, c, "jobs", "jobs/w-1 waits 1 holds 1/1 acked 0 failed 0 expired 0")
		cancel()
		waits.Wait()
		expectWorkers(t, c, "jobs", "jobs/w-1 waits 0 holds 1/1 acked 0 failed 0 expired 0")
		if _, err := c.Purge(t.Context(), "jobs"); err != nil {
			t.Fatal(err)
		}
		expectWorkers(t, c, "jobs", "jobs/w-1 waits 0 holds 0/0 acked 0 failed 0 expired 0")
		if err := c.Delete(t.Context(), "jobs"); err != nil {
			t.Fatal(err)
		}
		expectWorkers(t, c, "jobs", "")
		if shares := fmt.Sprint(b.Shares()); !strings.Contains(shares, "{workers 0 ") {
			t.Errorf("the list keeps room: %s", shares)
		}
	})
}

// TestWorkersAreSeenByTokensForThem is CON-1: a token sees the workers of its queues and tenant.
func TestWorkersAreSeenByTokensForThem(t *testing.T) {
	b := memory(t, broker.Limits{})
	for _, tenant := range []string{"", "acme"} {
		for _, queue := range []string{"jobs", "mails"} {
			b.send(b.as(tenant), queue, "x")
			if _, err := named(t, b.as(tenant), "of-"+tenant).Receive(t.Context(), queue, driver.ReceiveRequest{Max: 1, Visibility: time.Hour}); err != nil {
				t.Fatal(err)
			}
		}
	}
	const rest = " acked 0 failed 0 expired 0"
	expectWorkers(t, b.as("acme"), "", "jobs/of-acme waits 0 holds 1/0"+rest+"; mails/of-acme waits 0 holds 1/0"+rest)
	stats := b.as("acme", capability.Operations(capability.OpStats), capability.Queues(capability.Queue("mails")))
	expectWorkers(t, stats, "", "mails/of-acme waits 0 holds 1/0"+rest)
	expectWorkers(t, stats, "mails", "mails/of-acme waits 0 holds 1/0"+rest) // without peek no message
	if _, err := stats.Workers(t.Context(), "jobs"); !errors.Is(err, driver.ErrForbidden) {
		t.Errorf("the workers of another queue: %v", err)
	}
	receiver := b.as("acme", capability.Operations(capability.OpRecv))
	expectWorkers(t, receiver, "", "")
	if _, err := receiver.Workers(t.Context(), "jobs"); !errors.Is(err, driver.ErrForbidden) {
		t.Errorf("without stats: %v", err)
	}
	operator, err := b.as("").InTenant(t.Context(), "acme")
	if err != nil {
		t.Fatal(err)
	}
	expectWorkers(t, operator, "jobs", "jobs/of-acme waits 0 holds 1/1"+rest)
}

// TestWorkersOfOneTenantLeaveRoomForOthers is OPS-4.
func TestWorkersOfOneTenantLeaveRoomForOthers(t *testing.T) {
	b := memory(t, broker.Limits{})
	count := func(tenant string) int {
		workers, err := b.as(tenant).Workers(t.Context(), "jobs")
		if err != nil {
			t.Fatal(err)
		}
		return len(workers)
	}
	crowd := b.as("crowd")
	const most = 4096 * 7 / 8 * 7 / 8 // one tenant and one token leave an eighth each
	b.send(crowd, "jobs", "x")
	for i := range 5000 {
		if _, err := named(t, crowd, fmt.Sprint(i)).Receive(t.Context(), "jobs", driver.ReceiveRequest{Max: 1, Visibility: time.Hour}); err != nil {
			t.Fatal(err)
		}
	}
	if n := count("crowd"); n != most {
		t.Errorf("%d workers of the only tenant are listed, want %d", n, most)
	}
	b.send(crowd, "jobs", "y")
	got, err := named(t, crowd, "not listed").Receive(t.Context(), "jobs", driver.ReceiveRequest{Max: 1, Visibility: time.Hour})
	if err != nil || len(got) != 1 || count("crowd") != most {
		t.Fatalf("a worker beyond the list received %d messages, %v", len(got), err)
	}
	if err := crowd.Ack(t.Context(), "jobs", []string{got[0].Receipt}); err != nil {
		t.Error(err)
	}
	b.send(b.as("quiet"), "jobs", "x")
	got, err = named(t, b.as("quiet"), "w").Receive(t.Context(), "jobs", driver.ReceiveRequest{Max: 1, Visibility: time.Hour})
	if err != nil || len(got) != 1 || count("quiet") != 1 {
		t.Errorf("the second tenant received %d messages (%v), and %d of its workers are listed", len(got), err, count("quiet"))
	}
}

func TestWorkerHoldsOldestMessagesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory(t, broker.Limits{})
		c := b.as("")
		var first string
		for range 3 * broker.MaxHeldShown {
			b.send(c, "jobs", "x")
			got, err := named(t, c, "w").Receive(t.Context(), "jobs", driver.ReceiveRequest{Max: 1, Visibility: time.Hour})
			if err != nil || len(got) != 1 {
				t.Fatal(err)
			}
			if first == "" {
				first = got[0].ID
			}
			time.Sleep(time.Second)
		}
		workers, err := c.Workers(t.Context(), "jobs")
		if err != nil || len(workers) != 1 {
			t.Fatalf("%+v, %v", workers, err)
		}
		held := workers[0].Held
		if len(held) != broker.MaxHeldShown || held[0].ID != first || held[len(held)-1].TakenAt.Sub(held[0].TakenAt) != (broker.MaxHeldShown-1)*time.Second {
			t.Errorf("%+v", held)
		}
	})
}

func TestWorkerNamesAreBoundedText(t *testing.T) {
	c := memory(t, broker.Limits{}).as("")
	for _, good := range []string{"", "w", "billing@host-7:4312", `<script>alert(1)</script>`, "Größe 漢字", strings.Repeat("x", broker.MaxWorkerBytes)} {
		if _, err := c.Named(good, "test"); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for _, bad := range []string{"a\nb", "\x1b[31mred", "a\x00", "\u202egpj", "\xff", strings.Repeat("x", broker.MaxWorkerBytes+1)} {
		if _, err := c.Named(bad, "test"); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("%q: %v", bad, err)
		}
		if _, err := c.Named(broker.WorkerName(bad), "test"); err != nil {
			t.Errorf("made of %q: %v", bad, err)
		}
	}
	if got := broker.WorkerName("aws-sdk-go/1.2\x1b[31m"); got != "aws-sdk-go/1.2?[31m" {
		t.Errorf("%q", got)
	}
}

func FuzzWorkerName(f *testing.F) {
	for _, seed := range []string{"", "curl/8.5.0", "\xff\xfe", "a\u202eb", strings.Repeat("ä", 200)} {
		f.Add(seed)
	}
	c := memory(f, broker.Limits{}).as("")
	f.Fuzz(func(t *testing.T, said string) {
		if _, err := c.Named(broker.WorkerName(said), "test"); err != nil {
			t.Errorf("%q: %v", said, err)
		}
	})
}

func TestWorkersAtTwoAddressesAreTwo(t *testing.T) {
	b := memory(t, broker.Limits{})
	c := b.as("")
	b.send(c, "jobs", "x")
	token := mint(t, b.ring, "")
	for _, address := range []string{"10.0.0.1", "10.0.0.2", "10.0.0.1"} {
		from := b.Caller(token, broker.Origin{Client: netip.MustParseAddr(address)})
		if _, err := named(t, from, "w").Receive(t.Context(), "jobs", driver.ReceiveRequest{Max: 1, Visibility: time.Hour}); err != nil {
			t.Fatal(err)
		}
	}
	const rest = " acked 0 failed 0 expired 0"
	expectWorkers(t, c, "jobs", "jobs/w waits 0 holds 1/1"+rest+"; jobs/w waits 0 holds 0/0"+rest)
}

// TestProgressIsShownToThoseWhoMayPeek is OBS-0 and CON-1: what the holder of a message reports is in its
// trace and among the workers, as long as the message is held, for tokens that may see the message.
func TestProgressIsShownToThoseWhoMayPeek(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory(t, broker.Limits{})
		c := b.as("")
		worker := named(t, c, "w-1")
		id := b.send(c, "jobs", "x")
		receive := func() string {
			got, err := worker.Receive(t.Context(), "jobs", driver.ReceiveRequest{Max: 1, Visibility: time.Minute})
			if err != nil || len(got) != 1 {
				t.Fatal(len(got), err)
			}
			return got[0].Receipt
		}
		extend := func(receipt string, progress *driver.Progress) error {
			_, err := c.Extend(t.Context(), "jobs", []broker.Extension{{Receipt: receipt, Visibility: time.Minute, Progress: progress}})
			return driver.At(err, 0)
		}
		// shown is what a caller sees in the trace and in the list.
		shown := func(c broker.Caller) string {
			trace, err := c.Trace(t.Context(), "jobs", id)
			text := fmt.Sprint(errors.Is(err, driver.ErrForbidden))
			if trace.Progress != nil {
				text = fmt.Sprintf("%v %v ago", trace.Progress, time.Since(trace.Progress.At))
			}
			workers, _ := c.Workers(t.Context(), "jobs")
			for _, w := range workers {
				for _, held := range w.Held {
					text += fmt.Sprintf(", %v", held.Progress)
				}
			}
			return text
		}
		expect := func(c broker.Caller, want string) {
			t.Helper()
			if got := shown(c); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		}
		first := receive()
		expect(c, "false, <nil>")
		if err := extend(first, &driver.Progress{Fraction: 0.4, Text: "page 4"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		if err := errors.Join(extend(first, &driver.Progress{Fraction: 0.4, Text: "page 4"}), extend(first, nil)); err != nil {
			t.Fatal(err)
		}
		expect(c, "40 %: page 4 10s ago, 40 %: page 4")
		expect(b.as("", capability.Operations(capability.OpPeek)), "40 %: page 4 10s ago")
		expect(b.as("", capability.Operations(capability.OpStats)), "true")
		expect(b.as("", capability.Operations(capability.OpSend, capability.OpRecv, capability.OpExtend)), "true")
		expect(b.as("", capability.Queues(capability.Queue("mails"))), "true")
		expect(b.as("acme"), "false")
		err := extend(first, &driver.Progress{Fraction: 2})
		if e, ok := errors.AsType[*driver.Error](err); !ok || e.Code != driver.ErrInvalid || e.Field != "Progress" {
			t.Errorf("a fraction of 2: %v", err)
		}
		expect(c, "40 %: page 4 10s ago, 40 %: page 4")
		// The next holder has reported nothing, and the one before cannot.
		time.Sleep(2 * time.Minute)
		second := receive()
		if err := extend(first, &driver.Progress{Fraction: 0.5}); !errors.Is(err, driver.ErrReceiptExpired) {
			t.Errorf("the holder of before: %v", err)
		}
		expect(c, "false, <nil>")
		if err := extend(second, &driver.Progress{Fraction: -1, Text: "page 1"}); err != nil {
			t.Fatal(err)
		}
		expect(c, "page 1 0s ago, page 1")
		if err := c.Ack(t.Context(), "jobs", []string{second}); err != nil {
			t.Fatal(err)
		}
		expect(c, "false")
	})
}

// TestProgressOfOneWorkerIsBounded: reports of ended leases make room for others.
func TestProgressOfOneWorkerIsBounded(t *testing.T) {
	b := memory(t, broker.Limits{})
	c := b.as("")
	for range 40 {
		b.send(c, "jobs", "x")
	}
	worker := named(t, c, "w-1")
	got, err := worker.Receive(t.Context(), "jobs", driver.ReceiveRequest{Max: 40, Visibility: time.Hour})
	if err != nil || len(got) != 40 {
		t.Fatal(len(got), err)
	}
	report := func() (kept int) {
		for i := range got {
			// One more that is settled has no effect.
			_, _ = c.Extend(t.Context(), "jobs", []broker.Extension{{Receipt: got[i].Receipt, Visibility: time.Hour, Progress: &driver.Progress{Text: fmt.Sprint(i)}}})
		}
		for i := range got {
			if trace, err := c.Trace(t.Context(), "jobs", got[i].ID); err == nil && trace.Progress != nil {
				kept++
			}
		}
		return kept
	}
	if kept := report(); kept != 16 {
		t.Errorf("%d reports are kept, want 16", kept)
	}
	for i := range 10 {
		if err := c.Ack(t.Context(), "jobs", []string{got[i].Receipt}); err != nil {
			t.Fatal(err)
		}
	}
	if kept := report(); kept != 16 {
		t.Errorf("%d reports are kept after acks, want 16", kept)
	}
}
