package redisbox

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/zeebo/blake3"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/redistest"
)

// unique returns a message with a unique key.
func unique(key, body string) driver.Outgoing {
	return driver.Outgoing{Body: []byte(body), UniqueKey: key}
}

// wantDuplicate sends a message that is a duplicate of another one.
func wantDuplicate(t *testing.T, q *handle, msg driver.Outgoing, id string, replaced bool) {
	t.Helper()
	if sent := sendOne(t, q, msg); sent.ID != id || !sent.Duplicate || sent.Replaced != replaced {
		t.Errorf("send %q: got %+v, want a duplicate of %s, replaced %v", msg.Body, sent, id, replaced)
	}
}

// wantHolder checks that a message was not moved because another one holds its unique key.
func wantHolder(t *testing.T, err error, holder string) {
	t.Helper()
	wantCode(t, err, driver.ErrConflict)
	if conflict, ok := errors.AsType[*driver.Error](err); !ok || conflict.MessageID != holder {
		t.Errorf("got %v, want it to name %s", err, holder)
	}
}

// TestHeldKeysChangeSchema: processes of versions without unique keys, which would leave keys
// behind, get an error while keys are held.
func TestHeldKeysChangeSchema(t *testing.T) {
	t.Parallel()
	b := open(t, connect(t, redistest.SharedServer(t).ClientOption()), &Options{Prefix: redistest.Prefix(t)})
	q := openQueue(t, b)
	wantSchema := func(want string) {
		t.Helper()
		if got := field(t, b, keyOf(q, "meta"), "schema"); got != want {
			t.Errorf("got schema %s, want %s", got, want)
		}
	}
	send(t, q, "plain")
	wantSchema("2")
	sendOne(t, q, unique("k", "held"))
	wantSchema("6")
	sendPriority(t, q, "urgent", 5)
	wantSchema("8")
	if err := q.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantSchema("9")
	wantStats(t, q, driver.Stats{Ready: 3, Paused: true})
	if err := q.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantSchema("8")
	got := receive(t, q, 3, hold)
	wantSchema("6")
	if err := q.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantSchema("7")
	for _, d := range got {
		if err := q.Ack(t.Context(), []driver.Receipt{d.Receipt}); err != nil {
			t.Fatal(err)
		}
	}
	wantSchema("3")
}

// TestPlainMessagesStayBundledBesideKeys: only messages with entries take the slow path of acks
// while keys are held, and the last ack of a key changes the schema back.
func TestPlainMessagesStayBundledBesideKeys(t *testing.T) {
	t.Parallel()
	b := open(t, connect(t, redistest.SharedServer(t).ClientOption()), &Options{Prefix: redistest.Prefix(t)})
	q := openQueue(t, b)
	late := unique("k", "late")
	late.Delay = hold
	sendOne(t, q, late)
	send(t, q, "a", "b", "c")
	got := receive(t, q, 3, hold)
	client := b.server.Client
	if n, err := client.Do(t.Context(), client.B().Hlen().Key(keyOf(q, "manifests")).Build()).AsInt64(); err != nil || n != 1 {
		t.Errorf("got %d bundles, error %v; want 1", n, err)
	}
	for _, d := range got {
		if err := q.Ack(t.Context(), []driver.Receipt{d.Receipt}); err != nil {
			t.Fatal(err)
		}
	}
	wantStats(t, q, driver.Stats{Delayed: 1})
}

// TestUniqueAndDedupKeysOfDifferentShards: each key has its shard, and the two agree.
func TestUniqueAndDedupKeysOfDifferentShards(t *testing.T) {
	t.Parallel()
	for kind, option := range topologies(t) {
		t.Run(kind, func(t *testing.T) {
			q := configured(t, open(t, connect(t, option), &Options{Prefix: redistest.Prefix(t)}), driver.Config{Shards: 4, DedupMax: 400})
			apart := 0
			for i := range 12 {
				key := func(kind string, i int) string { return fmt.Sprint(kind, i) }
				if q.ShardOfUnique(key("u", i)) != q.ShardOf(key("k", i)) {
					apart++
				}
				msg := func(dedup, body string, replace bool) driver.Outgoing {
					return driver.Outgoing{Body: []byte(body), UniqueKey: key("u", i), DedupKey: dedup, Replace: replace}
				}
				first := sendOne(t, q, msg(key("k", i), "first", false))
				if first.Duplicate {
					t.Fatalf("the first send is a duplicate: %+v", first)
				}
				wantDuplicate(t, q, msg(key("k", i), "first", false), first.ID, false) // by its dedup key
				wantDuplicate(t, q, msg(key("l", i), "second", false), first.ID, false)
				wantDuplicate(t, q, msg(key("m", i), "third", true), first.ID, true)
				wantDuplicate(t, q, msg(key("n", i), "fourth", true), first.ID, true)
				wantDuplicate(t, q, msg(key("m", i), "third", true), first.ID, false) // does not replace again
				_, err := q.Send(t.Context(), []driver.Outgoing{msg(key("m", i), "other", true)})
				wantCode(t, err, driver.ErrConflict)
				d := receive(t, q, 1, hold)[0]
				if d.ID != first.ID || string(d.Body) != "fourth" {
					t.Errorf("got %s %q, want %s with the body of the last send", d.ID, d.Body, first.ID)
				}
				if err := q.Ack(t.Context(), []driver.Receipt{d.Receipt}); err != nil {
					t.Fatal(err)
				}
				for _, dedup := range []string{"k", "l", "m", "n"} { // they stand for the message that held the key
					body := map[string]string{"k": "first", "l": "second", "m": "third", "n": "fourth"}[dedup]
					wantDuplicate(t, q, msg(key(dedup, i), body, false), first.ID, false)
				}
			}
			if apart == 0 {
				t.Error("all keys are in one shard: this shows nothing")
			}
			wantStats(t, q, driver.Stats{})
		})
	}
}

// TestClaimWithoutRoomForUniqueKeyIsReleased: a message that is refused leaves neither key.
func TestClaimWithoutRoomForUniqueKeyIsReleased(t *testing.T) {
	t.Parallel()
	q := configured(t, open(t, connect(t, redistest.SharedServer(t).ClientOption()), &Options{Prefix: redistest.Prefix(t)}), driver.Config{Shards: 2, DedupMax: 8})
	msg := driver.Outgoing{Body: []byte("refused"), UniqueKey: "u", DedupKey: "k"}
	for i := 0; q.ShardOf(msg.DedupKey) == q.ShardOfUnique(msg.UniqueKey); i++ {
		msg.DedupKey = fmt.Sprint("k", i)
	}
	var filling []string
	for i := 0; len(filling) < 4; i++ {
		if key := fmt.Sprint("f", i); q.ShardOfUnique(key) == q.ShardOfUnique("u") {
			filling = append(filling, sendOne(t, q, unique(key, "filling")).ID)
		}
	}
	_, err := q.Send(t.Context(), []driver.Outgoing{msg})
	wantCode(t, err, driver.ErrFull)
	if !strings.Contains(err.Error(), "unique keys") || !strings.Contains(err.Error(), "DedupMax 8") {
		t.Errorf("got %v, want it to name the limit", err)
	}
	if _, err := q.Edit(t.Context(), filling[0], driver.Edit{Remove: true}); err != nil {
		t.Fatal(err)
	}
	if sent := sendOne(t, q, msg); sent.Duplicate {
		t.Errorf("got %+v, want a new message", sent)
	}
}

// TestMovePassesOverManyHeldKeys: messages that stay do not keep those behind them, and do not
// count.
func TestMovePassesOverManyHeldKeys(t *testing.T) {
	t.Parallel()
	for kind, option := range topologies(t) {
		t.Run(kind, func(t *testing.T) {
			b := open(t, connect(t, option), &Options{Prefix: redistest.Prefix(t)})
			q, target := openQueue(t, b), openNamed(t, b, "target")
			const held = 230 // more than two pages
			var holder string
			for i := range held {
				id := sendOne(t, target, unique(fmt.Sprint(i), "holds")).ID
				sendOne(t, q, unique(fmt.Sprint(i), "stays"))
				if i == 0 {
					holder = id
				}
			}
			send(t, q, "a")
			sendOne(t, q, unique("free", "b"))
			send(t, q, "c")
			moved, err := q.Move(t.Context(), "target", 1)
			if moved != 1 {
				t.Errorf("moved %d, want 1: those that stay do not count", moved)
			}
			wantHolder(t, err, holder)
			moved, err = q.Move(t.Context(), "target", 0)
			if moved != 2 {
				t.Errorf("moved %d, want 2", moved)
			}
			wantHolder(t, err, holder)
			wantStats(t, q, driver.Stats{Ready: held})
			wantStats(t, target, driver.Stats{Ready: held + 3})
			var last []string
			for range (held + 3) / 10 {
				for _, d := range receive(t, target, 10, hold) {
					last = append(last, string(d.Body))
				}
			}
			for _, d := range receive(t, target, (held+3)%10, hold) {
				last = append(last, string(d.Body))
			}
			if got := strings.Join(last[held:], " "); got != "a b c" {
				t.Errorf("got %q behind those of the target, want a b c", got)
			}
		})
	}
}

// TestForwardedMessageYieldsItsKey: a dead letter arrives in the queue that takes it, whether or
// not its key is free there.
func TestForwardedMessageYieldsItsKey(t *testing.T) {
	t.Parallel()
	for kind, option := range topologies(t) {
		t.Run(kind, func(t *testing.T) {
			b := open(t, connect(t, option), &Options{Prefix: redistest.Prefix(t)})
			target := openNamed(t, b, "failed")
			if err := b.ConfigureQueue(t.Context(), "failed", driver.Config{DedupMax: 2}); err != nil {
				t.Fatal(err)
			}
			q := configured(t, b, driver.Config{DeadLetterTo: "failed"})
			holder := sendOne(t, target, unique("taken", "holds")).ID
			var dead []string
			for _, key := range []string{"taken", "free", "one too many"} {
				dead = append(dead, sendOne(t, q, unique(key, key)).ID)
				got := receive(t, q, 1, hold)[0]
				if err := q.DeadLetter(t.Context(), []driver.DeadLetterRequest{{Receipt: got.Receipt, Reason: driver.ReasonFatal}}); err != nil {
					t.Fatal(err)
				}
			}
			wantStats(t, q, driver.Stats{})
			wantStats(t, target, driver.Stats{Ready: 4})
			wantDuplicate(t, target, unique("taken", "again"), holder, false)
			wantDuplicate(t, target, unique("free", "again"), dead[1], false)
			_, err := target.Send(t.Context(), []driver.Outgoing{unique("one too many", "again")})
			wantCode(t, err, driver.ErrFull)
			for range 4 { // without a key, or as the holder
				d := receive(t, target, 1, hold)[0]
				if err := target.Ack(t.Context(), []driver.Receipt{d.Receipt}); err != nil {
					t.Fatal(err)
				}
			}
			if sent := sendOne(t, target, unique("taken", "new")); sent.Duplicate {
				t.Errorf("got %+v after all were acked", sent)
			}
		})
	}
}

// TestReplacedMessageKeepsLongGroupAndTime: both are in the record, of which the last send has
// its own.
func TestReplacedMessageKeepsLongGroupAndTime(t *testing.T) {
	t.Parallel()
	for _, group := range []string{"", "g", strings.Repeat("g", 127), strings.Repeat("g", 128), strings.Repeat("g", driver.MaxGroupBytes)} {
		q := openQueue(t, open(t, connect(t, redistest.SharedServer(t).ClientOption()), &Options{Prefix: redistest.Prefix(t)}))
		first := unique("k", "first")
		first.Group = group
		id := sendOne(t, q, first).ID
		peeked := func() driver.Peeked {
			t.Helper()
			for seen, err := range q.Peek(t.Context(), driver.Query{ID: id}) {
				if err != nil {
					t.Fatal(err)
				}
				return seen
			}
			t.Fatal("the message is not there")
			return driver.Peeked{}
		}
		before := peeked()
		for _, body := range []string{"second", "third"} {
			next := unique("k", body)
			next.Group, next.Replace = "other", true
			wantDuplicate(t, q, next, id, true)
			if got := peeked(); string(got.Body) != body || got.Group != group || !got.EnqueuedAt.Equal(before.EnqueuedAt) {
				t.Errorf("group of %d bytes: got %q of group %q, sent at %v; want %q and %v", len(group), got.Body, got.Group, got.EnqueuedAt, body, before.EnqueuedAt)
			}
		}
		d := receive(t, q, 1, hold)[0]
		if err := q.DeadLetter(t.Context(), []driver.DeadLetterRequest{{Receipt: d.Receipt, Reason: driver.ReasonFatal}}); err != nil {
			t.Fatal(err)
		}
		if n, err := q.Redrive(t.Context(), nil, 0); n != 1 || err != nil {
			t.Fatalf("redrive: %d, %v", n, err)
		}
		if got := peeked(); string(got.Body) != "third" || got.Group != group || !got.EnqueuedAt.Equal(before.EnqueuedAt) {
			t.Errorf("redriven: got %q of group %q, sent at %v", got.Body, got.Group, got.EnqueuedAt)
		}
	}
}

// TestKeyOfDamagedMessageIsFreed: a message whose entry cannot be read does not say which key it
// holds.
func TestKeyOfDamagedMessageIsFreed(t *testing.T) {
	t.Parallel()
	for key, value := range map[string]string{"state": "short", "data": strings.Repeat("x", 200)} {
		client := connect(t, redistest.SharedServer(t).ClientOption())
		q := openQueue(t, open(t, client, &Options{Prefix: redistest.Prefix(t)}))
		id := sendOne(t, q, unique("k", "damaged")).ID
		overwrite(t, client, keyOf(q, key), id, value)
		wantDuplicate(t, q, unique("k", "other"), id, false)
		wantNothing(t, q)
		wantStats(t, q, driver.Stats{Dead: 1})
		if sent := sendOne(t, q, unique("k", "other")); sent.Duplicate {
			t.Errorf("%s: got %+v, want a new message", key, sent)
		}
	}
}

// TestUniqueKeysSearchNothing: sends, replacing, receiving and acking cost the server the same
// number of commands, however many messages wait, and none that searches a list.
func TestUniqueKeysSearchNothing(t *testing.T) {
	t.Parallel()
	server := redistest.Standalone(t)
	q := openQueue(t, open(t, connect(t, server.ClientOption()), nil))
	count := func(waiting int) (commands int) {
		t.Helper()
		for i := range waiting {
			sendOne(t, q, unique(fmt.Sprint(waiting, " ", i), "waits"))
		}
		stop, err := server.Monitor(t.Context(), func(line string) {
			who, command := heardCommand(line)
			if who != "lua" || len(command) == 0 {
				return
			}
			commands++
			if command[0] == "LREM" || command[0] == "LPOS" || command[0] == "LRANGE" {
				t.Errorf("%.80q searches a list", command)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		last := fmt.Sprint(waiting, " ", waiting-1)
		sendOne(t, q, unique(last, "duplicate"))
		replacing := unique(last, "replaces")
		replacing.Replace = true
		sendOne(t, q, replacing)
		d := receive(t, q, 1, hold)[0]
		if err := q.Ack(t.Context(), []driver.Receipt{d.Receipt}); err != nil {
			t.Fatal(err)
		}
		stop()
		return commands
	}
	if few, many := count(5), count(2000); many > few+50 { // the watcher of the shard may have called
		t.Errorf("%d commands with few messages, and %d with many", few, many)
	}
}

// TestFreedKeysAreForgotten: every way out of a queue takes the key out of the table.
func TestFreedKeysAreForgotten(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(t *testing.T, b *Backend, q *handle, id string){
		"ack": func(t *testing.T, _ *Backend, q *handle, _ string) {
			t.Helper()
			if err := q.Ack(t.Context(), []driver.Receipt{receive(t, q, 1, hold)[0].Receipt}); err != nil {
				t.Fatal(err)
			}
		},
		"death": func(t *testing.T, _ *Backend, q *handle, _ string) {
			t.Helper()
			if err := q.DeadLetter(t.Context(), []driver.DeadLetterRequest{{Receipt: receive(t, q, 1, hold)[0].Receipt, Reason: driver.ReasonFatal}}); err != nil {
				t.Fatal(err)
			}
		},
		"removal": func(t *testing.T, _ *Backend, q *handle, id string) {
			t.Helper()
			if _, err := q.Edit(t.Context(), id, driver.Edit{Remove: true}); err != nil {
				t.Fatal(err)
			}
		},
		"purge": func(t *testing.T, _ *Backend, q *handle, _ string) {
			t.Helper()
			if _, err := q.Purge(t.Context()); err != nil {
				t.Fatal(err)
			}
		},
		"move": func(t *testing.T, b *Backend, q *handle, _ string) {
			t.Helper()
			openNamed(t, b, "target")
			if moved, err := q.Move(t.Context(), "target", 0); moved != 1 || err != nil {
				t.Fatalf("moved %d, error %v", moved, err)
			}
		},
		"deletion of the queue": func(t *testing.T, b *Backend, _ *handle, _ string) {
			t.Helper()
			if err := b.DeleteQueue(t.Context(), "orders"); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := open(t, connect(t, redistest.SharedServer(t).ClientOption()), &Options{Prefix: redistest.Prefix(t)})
			q := openQueue(t, b)
			id := sendOne(t, q, unique("k", "a")).ID
			if got := field(t, b, keyOf(q, "holders"), holdersField("k")); got != id {
				t.Fatalf("the key is held by %q, want %s", got, id)
			}
			leave(t, b, q, id)
			client := b.server.Client
			if n, err := client.Do(t.Context(), client.B().Hlen().Key(keyOf(q, "holders")).Build()).AsInt64(); err != nil || n != 0 {
				t.Errorf("%d keys are held, error %v; want none", n, err)
			}
		})
	}
}

// holdersField returns the field of a unique key in holders.
func holdersField(key string) string {
	sum := blake3.Sum256([]byte(key))
	return string(sum[:16])
}

// TestMessageReplacedInItsOwnCallIsTheYoungest: retention by count removes those that were sent
// before it.
func TestMessageReplacedInItsOwnCallIsTheYoungest(t *testing.T) {
	t.Parallel()
	b := open(t, connect(t, redistest.SharedServer(t).ClientOption()), &Options{
		Prefix: redistest.Prefix(t), Defaults: driver.Config{RetainReady: driver.Retention{Count: 3}},
	})
	q := openQueue(t, b)
	last := unique("k", "last")
	last.Replace = true
	sent, err := q.Send(t.Context(), []driver.Outgoing{{Body: []byte("first")}, {Body: []byte("second")}, unique("k", "third"), last})
	if err != nil || !sent[3].Replaced {
		t.Fatalf("got %+v, %v", sent, err)
	}
	send(t, q, "later")
	send(t, q, "latest")
	for i, want := range []string{"last", "later", "latest"} {
		if got := receive(t, q, 1, hold); string(got[0].Body) != want {
			t.Errorf("message %d is %q, want %q", i, got[0].Body, want)
		}
	}
}
