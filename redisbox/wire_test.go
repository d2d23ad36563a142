package redisbox

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/driver/drivertest"
	"github.com/mailboxmq/mailbox/internal/testing/redistest"
)

// wiretapped is a queue behind a proxy that records every request.
type wiretapped struct {
	*handle
	mu       sync.Mutex // guards requests
	requests [][]string
}

func newWiretapped(t *testing.T, config driver.Config) *wiretapped {
	t.Helper()
	server := redistest.SharedServer(t)
	proxy := redistest.NewProxy(t, server.Addr())
	w := &wiretapped{}
	proxy.OnRequest(func(args []string) redistest.Action {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.requests = append(w.requests, args)
		return redistest.Pass
	})
	w.handle = configured(t, open(t, connect(t, through(server, proxy)), &Options{Prefix: redistest.Prefix(t)}), config)
	send(t, w, "the scripts are loaded")
	receive(t, w, 1, hold)
	eventually(t, "the queue is minded", func() bool { return w.subscribed() })
	pause(50 * time.Millisecond) // until it has looked
	if _, err := w.Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.heard()
	return w
}

// heard returns the requests since it was last called.
func (w *wiretapped) heard() [][]string {
	w.mu.Lock()
	defer w.mu.Unlock()
	heard := w.requests
	w.requests = nil
	return heard
}

// wantRequests checks the number of requests.
func (w *wiretapped) wantRequests(t *testing.T, what string, n int) {
	t.Helper()
	if heard := w.heard(); len(heard) != n {
		t.Errorf("%s: %d requests, want %d: %.60q", what, len(heard), n, heard)
	}
}

var quoted = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)

// heardCommand reads a line of MONITOR: the client, "lua" for a script, and the words of
// the command.
func heardCommand(line string) (who string, command []string) {
	_, rest, ok := strings.Cut(line, "[")
	if !ok {
		return "", nil
	}
	who, rest, _ = strings.Cut(rest, "]")
	_, who, _ = strings.Cut(who, " ") // after the number of the database
	for _, word := range quoted.FindAllString(rest, -1) {
		if text, err := strconv.Unquote(word); err == nil {
			word = text
		}
		command = append(command, word)
	}
	if len(command) > 0 {
		command[0] = strings.ToUpper(command[0])
	}
	return who, command
}

// TestScriptsTouchOnlyTheirKeys monitors scripts while random programs run: every key must
// have been passed, and all that were passed must have one hash tag.
func TestScriptsTouchOnlyTheirKeys(t *testing.T) {
	t.Parallel()
	server := redistest.Standalone(t)
	client := connect(t, server.ClientOption())
	var passed []string
	scripts, inside := 0, 0
	stop, err := server.Monitor(t.Context(), func(line string) {
		who, command := heardCommand(line)
		if len(command) == 0 {
			return
		}
		switch {
		case who != "lua" && (command[0] == "EVALSHA" || command[0] == "EVAL"):
			n, _ := strconv.Atoi(command[2])
			passed = command[3 : 3+n]
			scripts++
			for _, key := range passed[1:] {
				if redistest.Slot(key) != redistest.Slot(passed[0]) || tagOf(key) != tagOf(passed[0]) {
					t.Errorf("%s and %s are passed together", passed[0], key)
				}
			}
		case who == "lua":
			inside++
			for _, key := range keysOf(command) {
				if !slices.Contains(passed, key) {
					t.Errorf("%.80q touches %s, which was not passed", command, key)
				}
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	backend := drivertest.Backend{
		Open: func(t testing.TB) driver.Opener { return open(t, client, &Options{Prefix: redistest.Prefix(t)}) },
	}
	drivertest.RunRandom(t, backend, 300)
	useMoves(t, open(t, client, &Options{Prefix: redistest.Prefix(t)}))
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if scripts < 300 || inside < 5*scripts {
		t.Errorf("heard %d scripts and %d commands in them: is that all?", scripts, inside)
	}
}

func tagOf(key string) string {
	_, tag, _ := strings.Cut(key, "{")
	tag, _, _ = strings.Cut(tag, "}")
	return tag
}

// keysOf returns the keys of a command that a script runs.
func keysOf(command []string) []string {
	switch command[0] {
	case "TIME", "INFO":
		return nil
	case "SPUBLISH":
		return nil // a channel, which the cluster refuses in another slot
	case "UNLINK":
		return command[1:]
	}
	return command[1:2]
}

// TestNoQueueKeyExpires: a queue that is not used for years still exists.
func TestNoQueueKeyExpires(t *testing.T) {
	t.Parallel()
	server := redistest.Standalone(t)
	client := connect(t, server.ClientOption())
	backend := drivertest.Backend{Open: func(t testing.TB) driver.Opener { return open(t, client, nil) }}
	drivertest.RunRandom(t, backend, 1_000)
	q := openQueue(t, open(t, client, nil))
	send(t, q, "a", "b")
	receive(t, q, 1, hold)
	reply, err := server.Do(t.Context(), "KEYS", "*")
	if err != nil {
		t.Fatal(err)
	}
	keys := reply.([]any)
	if len(keys) < 3 {
		t.Fatalf("there are only %q", keys)
	}
	for _, key := range keys {
		if ttl, err := server.Do(t.Context(), "PTTL", fmt.Sprint(key)); err != nil || ttl != int64(-1) {
			if !strings.HasSuffix(fmt.Sprint(key), "}:gone") { // the tombstone of a deleted queue
				t.Errorf("%s expires in %v, error %v", key, ttl, err)
			}
		}
	}
}

// TestShardsAreSpreadOverTheCluster: each shard is in one slot, and the shards of a
// queue are in different ones, on all primaries.
func TestShardsAreSpreadOverTheCluster(t *testing.T) {
	cluster := redistest.SharedCluster(t)
	b := open(t, connect(t, cluster.ClientOption()), &Options{Prefix: redistest.Prefix(t)})
	q := configured(t, b, driver.Config{Shards: 32})
	slots, primaries := make(map[int]bool), make(map[string]bool)
	for _, s := range q.Shards {
		slot := redistest.Slot(s.Keys[0])
		for _, key := range s.Keys {
			if redistest.Slot(key) != slot {
				t.Errorf("%s is not in the slot of %s", key, s.Keys[0])
			}
		}
		primary, err := cluster.PrimaryOfSlot(t.Context(), slot)
		if err != nil {
			t.Fatal(err)
		}
		slots[slot], primaries[primary.Addr()] = true, true
	}
	if len(slots) < 30 || len(primaries) != 3 {
		t.Errorf("32 shards are in %d slots of %d primaries", len(slots), len(primaries))
	}
	// All processes of all versions must agree on the shard of a group.
	for group, want := range map[string]int{"": 5, "customer-1": 23, "customer-2": 10, "ä": 2} {
		if got := q.ShardOf(group).Number; got != want {
			t.Errorf("group %q belongs to shard %d, and used to belong to %d", group, got, want)
		}
	}
	for i := range 64 {
		group := fmt.Sprint("group-", i%8)
		sendOne(t, q, driver.Outgoing{Body: fmt.Append(nil, i), Group: group})
	}
	last := make(map[string]int)
	for _, d := range drainAll(t, q, 64) {
		n, _ := strconv.Atoi(string(d.Body))
		if n < last[d.Group] {
			t.Errorf("%s: %d came after %d", d.Group, n, last[d.Group])
		}
		last[d.Group] = n
	}
}

// drainAll receives n messages, in as many batches as necessary.
func drainAll(t *testing.T, q *handle, n int) (all []driver.Delivery) {
	t.Helper()
	for len(all) < n {
		got, err := q.Receive(t.Context(), driver.ReceiveRequest{Max: n, Visibility: hold, Wait: 5 * time.Second})
		if err != nil || len(got) == 0 {
			t.Fatalf("after %d of %d: got %d, error %v", len(all), n, len(got), err)
		}
		all = append(all, got...)
	}
	return all
}

// TestBothProtocolVersionsWork: RESP3 is what clients speak by default.
func TestBothProtocolVersionsWork(t *testing.T) {
	for _, old := range []bool{false, true} {
		t.Run(fmt.Sprint("version 2: ", old), func(t *testing.T) {
			server := redistest.Standalone(t)
			option := server.ClientOption()
			option.AlwaysRESP2, option.DisableCache = old, old
			useEverything(t, option)
			want := "resp=3"
			if old {
				want = "resp=2"
			}
			list, err := server.Do(t.Context(), "CLIENT", "LIST")
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(fmt.Sprint(list), want) {
				t.Errorf("no client speaks %s:\n%s", want, list)
			}
		})
	}
}

// useEverything does all operations on a queue: send, wait, receive, settle, dead-letter,
// redrive, peek, count, purge and delete; and uses reply slots.
func useEverything(t *testing.T, option rueidis.ClientOption) {
	t.Helper()
	b := open(t, connect(t, option), &Options{Prefix: "shop:"})
	q := configured(t, b, driver.Config{Shards: 3, MaxDeliveries: 2, DeadLetterTo: "dlq"})
	done := waiting(t, q)
	if _, err := q.Send(t.Context(), []driver.Outgoing{{Body: []byte("a"), DedupKey: "k", Group: "g"}}); err != nil {
		t.Fatal(err)
	}
	select {
	case got := <-done:
		if err := q.Nack(t.Context(), []driver.Nack{{Receipt: got[0].Receipt, Cause: "why"}}); err != nil {
			t.Fatal(err)
		}
	case <-time.After(soon):
		t.Fatal("the waiter was not woken")
	}
	d := drainAll(t, q, 1)[0]
	if err := q.DeadLetter(t.Context(), []driver.DeadLetterRequest{{Receipt: d.Receipt, Reason: driver.ReasonFatal}}); err != nil {
		t.Fatal(err)
	}
	wantStats(t, q, driver.Stats{})
	dlq, err := b.OpenQueue(t.Context(), "dlq")
	if err != nil {
		t.Fatal(err)
	}
	wantStats(t, dlq, driver.Stats{Ready: 1})
	for range dlq.Peek(t.Context(), driver.Query{}) {
	}
	useEdits(t, dlq)
	useSchedules(t, dlq)
	useMoves(t, b)
	if n, err := dlq.Purge(t.Context()); err != nil || n != 1 {
		t.Errorf("purged %d, error %v", n, err)
	}
	if err := b.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	for _, err := range b.Queues(t.Context()) {
		if err != nil {
			t.Error(err)
		}
	}
	if err := b.DeleteQueue(t.Context(), "orders"); err != nil {
		t.Error(err)
	}
	useSlots(t, b.newReplyStore(0))
}

// useEdits changes the one message of a queue in all ways but removing it.
func useEdits(t *testing.T, q driver.Queue) {
	t.Helper()
	n := 0
	for found, err := range q.Peek(t.Context(), driver.Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		n++
		for _, edit := range []driver.Edit{{DeliverAt: time.Now().Add(time.Hour)}, {Ready: true}, {Prioritize: true, Priority: 5}} {
			if _, err := q.Edit(t.Context(), found.ID, edit); err != nil {
				t.Error(err)
			}
		}
	}
	if n != 1 {
		t.Errorf("edited %d messages, want 1", n)
	}
}

// useSchedules stores, lists and removes a schedule.
func useSchedules(t *testing.T, q driver.Queue) {
	t.Helper()
	stored, done, err := q.Fire(t.Context(), driver.Firing{Name: "nightly", Definition: []byte("{}")})
	if err != nil || !done {
		t.Fatalf("store: %v, %v", done, err)
	}
	for _, err := range q.Schedules(t.Context(), "") {
		if err != nil {
			t.Error(err)
		}
	}
	if _, done, err := q.Fire(t.Context(), driver.Firing{Name: "nightly", Revision: stored.Revision, Remove: true}); err != nil || !done {
		t.Errorf("remove: %v, %v", done, err)
	}
}

// useSlots does all operations on reply slots.
func useSlots(t *testing.T, r *replyStore) {
	t.Helper()
	ctx := t.Context()
	for _, id := range []string{"answered", "cancelled", "deleted"} {
		if err := r.Create(ctx, id, hold); err != nil {
			t.Fatal(err)
		}
	}
	got := make(chan error, 1)
	go func() {
		slot, err := r.Wait(ctx, "answered", hold)
		if err == nil && string(slot.Answer.Body) != "yes" {
			err = fmt.Errorf("got %+v", slot)
		}
		got <- err
	}()
	announcements := r.bucket("answered").announcements
	eventually(t, "it listens", func() bool { return announcements.Active.Load() })
	if err := r.Resolve(ctx, "answered", answerOf("yes")); err != nil {
		t.Error(err)
	}
	select {
	case err := <-got:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(soon):
		t.Fatal("the waiter was not woken")
	}
	if _, err := r.Consume(ctx, "answered"); err != nil {
		t.Error(err)
	}
	_, expiredErr := r.Expired(ctx, 10)
	_, sweepErr := r.Sweep(ctx, 10)
	if err := errors.Join(r.Cancel(ctx, "cancelled"), r.Delete(ctx, "deleted"), expiredErr, sweepErr); err != nil {
		t.Error(err)
	}
}
