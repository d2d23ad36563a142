package redisbox

import (
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/rueidis"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/redistest"
	"github.com/mailboxmq/mailbox/redisbox/internal/shard"
	"github.com/mailboxmq/mailbox/redisbox/internal/transfer"
)

// reserve makes a mover reserve messages and stop.
func reserve(t *testing.T, from, to *handle, limit int) []shard.ReservedMessage {
	t.Helper()
	out, _, _, err := from.Shards[0].Reserve(t.Context(), shard.ReserveRequest{Target: shard.TargetNote(to.Queue), Hold: hold, Limit: limit})
	if err != nil || len(out) != limit {
		t.Fatalf("took %d messages out, error %v; want %d", len(out), err, limit)
	}
	return out
}

// deliverAll makes it add them to the other queue, and stop before it records that.
func deliverAll(t *testing.T, from *handle, out []shard.ReservedMessage) *transfer.Transfer {
	t.Helper()
	c := &transfer.Transfer{From: from.Shards[0], Targets: transfer.NewTargets(transfers{from.backend}), Parts: make(map[*shard.Shard]*transfer.TransferPart)}
	for i := range out {
		if err := c.Address(t.Context(), &out[i]); err != nil {
			t.Fatal(err)
		}
	}
	for to, part := range c.Parts {
		if err := c.Deliver(t.Context(), to, part); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// TestInterruptedMoveContinues: another process finds a message whose move was begun, and
// there is one copy of it in the end.
func TestInterruptedMoveContinues(t *testing.T) {
	t.Parallel()
	for topology, option := range topologies(t) {
		for step, test := range map[string]struct {
			interrupt func(t *testing.T, q, shelter *handle)
			want      driver.Stats
		}{
			"before it was added": {func(t *testing.T, q, shelter *handle) {
				reserve(t, q, shelter, 2)
			}, driver.Stats{Ready: 2}},
			"after it was added": {func(t *testing.T, q, shelter *handle) {
				deliverAll(t, q, reserve(t, q, shelter, 2))
			}, driver.Stats{Ready: 2}},
			"after it was consumed": {func(t *testing.T, q, shelter *handle) {
				deliverAll(t, q, reserve(t, q, shelter, 2))
				ackAll(t, shelter, receive(t, shelter, 2, hold))
			}, driver.Stats{}},
		} {
			for _, repeated := range []bool{false, true} {
				t.Run(fmt.Sprint(topology, " ", step, " repeated ", repeated), func(t *testing.T) {
					t.Parallel()
					first, second := twoProcesses(t, option)
					q, shelter := openQueue(t, first), openNamed(t, first, "shelter")
					send(t, q, "a", "b")
					test.interrupt(t, q, shelter)
					wantStats(t, q, driver.Stats{InFlight: 2})
					wantNothing(t, q)
					if err := first.Close(); err != nil { // so that it cannot continue
						t.Fatal(err)
					}
					stall(t, q)

					other := openQueue(t, second)
					shelter = openNamed(t, second, "shelter")
					if repeated {
						if n, err := other.Move(t.Context(), "shelter", 0); err != nil || n != 2 {
							t.Errorf("the move repeated: %d moved, error %v; want 2", n, err)
						}
					}
					eventually(t, "the move is finished", func() bool {
						stats, err := other.Stats(t.Context())
						return err == nil && stats == driver.Stats{}
					})
					wantStats(t, shelter, test.want)
				})
			}
		}
	}
}

func twoProcesses(t *testing.T, option rueidis.ClientOption) (first, second *Backend) {
	prefix := redistest.Prefix(t)
	return open(t, connect(t, option), &Options{Prefix: prefix}), open(t, connect(t, option), &Options{Prefix: prefix})
}

func ackAll(t *testing.T, q driver.Queue, all []driver.Delivery) {
	t.Helper()
	receipts := make([]driver.Receipt, len(all))
	for i, d := range all {
		receipts[i] = d.Receipt
	}
	if err := q.Ack(t.Context(), receipts); err != nil {
		t.Fatal(err)
	}
}

// TestSeveralMoversMoveEachMessageOnce: each message moves once, and one mover counts it.
func TestSeveralMoversMoveEachMessageOnce(t *testing.T) {
	t.Parallel()
	const n, movers = 700, 4
	for topology, option := range topologies(t) {
		for _, home := range []bool{false, true} {
			t.Run(fmt.Sprint(topology, " home ", home), func(t *testing.T) {
				t.Parallel()
				first, second := twoProcesses(t, option)
				queues := []*handle{openQueue(t, first), openQueue(t, second)}
				shelter := openNamed(t, first, "shelter")
				var ids []string
				for range n / 100 {
					msgs := make([]driver.Outgoing, 100)
					for i := range msgs {
						msgs[i].Attributes = map[string]string{driver.AttributeDeadSource: "shelter"}
					}
					sent, err := queues[0].Send(t.Context(), msgs)
					if err != nil {
						t.Fatal(err)
					}
					for _, s := range sent {
						ids = append(ids, s.ID)
					}
				}
				to := map[bool]string{false: "shelter", true: ""}[home]
				var total atomic.Int64
				var group sync.WaitGroup
				for i := range movers {
					group.Go(func() {
						for range 10 {
							moved, err := queues[i%2].Move(t.Context(), to, n/8)
							if err != nil {
								t.Error(err)
							}
							total.Add(int64(moved))
						}
					})
				}
				group.Wait()
				wantStats(t, queues[0], driver.Stats{})
				var arrived []string
				for range n / 100 {
					for _, d := range receive(t, shelter, 100, hold) {
						arrived = append(arrived, d.ID)
					}
				}
				slices.Sort(arrived)
				slices.Sort(ids)
				if !slices.Equal(arrived, ids) || total.Load() != n {
					t.Errorf("%d messages arrived, and %d are said to have moved; want %d, each once", len(arrived), total.Load(), n)
				}
				wantNothing(t, shelter)
			})
		}
	}
}

// stall lets the reservations of messages of a queue run out. The next call notices it.
func stall(t *testing.T, q *handle) {
	t.Helper()
	client, invisible := q.backend.server.Client, keyOf(q, "invisible")
	members, err := client.Do(t.Context(), client.B().Zrange().Key(invisible).Min("0").Max("-1").Build()).AsStrSlice()
	if err != nil || len(members) == 0 {
		t.Fatalf("%d messages are in flight, error %v", len(members), err)
	}
	for _, member := range members {
		if err := client.Do(t.Context(), client.B().Zadd().Key(invisible).ScoreMember().ScoreMember(0, member).Build()).Error(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := configureFirstShard(t, q.backend, q.Name, q.Settings.Load().Config); err != nil { // makes the next call advance
		t.Fatal(err)
	}
}

// TestMoveToDeletedTargetPutsMessageBack: in its own place and with its state.
func TestMoveToDeletedTargetPutsMessageBack(t *testing.T) {
	t.Parallel()
	b := open(t, connect(t, redistest.SharedServer(t).ClientOption()), &Options{Prefix: redistest.Prefix(t)})
	q, shelter := openQueue(t, b), openNamed(t, b, "shelter")
	send(t, q, "a", "b")
	reserve(t, q, shelter, 1)
	if err := b.DeleteQueue(t.Context(), "shelter"); err != nil {
		t.Fatal(err)
	}
	shelter = openNamed(t, b, "shelter") // another queue with the same name
	stall(t, q)
	eventually(t, "it is put back", func() bool {
		stats, err := q.Stats(t.Context())
		return err == nil && stats == driver.Stats{Ready: 2}
	})
	for i, d := range receive(t, q, 2, hold) {
		if string(d.Body) != string("ab"[i]) || d.Deliveries != 1 {
			t.Errorf("got %q, delivery %d; want %q, delivery 1", d.Body, d.Deliveries, "ab"[i])
		}
	}
	wantStats(t, shelter, driver.Stats{})
}

// TestReturningMessageSupersedesItsMove: it has arrived in the target and moved back
// here, before its first mover has recorded that.
func TestReturningMessageSupersedesItsMove(t *testing.T) {
	t.Parallel()
	for _, strict := range []bool{false, true} {
		t.Run(fmt.Sprint("strict ", strict), func(t *testing.T) {
			t.Parallel()
			b := open(t, connect(t, redistest.SharedServer(t).ClientOption()), &Options{Prefix: redistest.Prefix(t)})
			q, shelter := configured(t, b, driver.Config{StrictGroups: strict, MaxMessages: 2}), openNamed(t, b, "shelter")
			send(t, q, "a", "b")
			c := deliverAll(t, q, reserve(t, q, shelter, 1))
			if n, err := shelter.Move(t.Context(), "orders", 0); err != nil || n != 1 {
				t.Fatalf("back: %d moved, error %v", n, err)
			}
			wantStats(t, q, driver.Stats{Ready: 2})
			if n, err := c.Finish(t.Context()); err != nil || n != 1 {
				t.Errorf("the first mover: %d moved, error %v; want the one that it has brought over", n, err)
			}
			wantStats(t, q, driver.Stats{Ready: 2})
			for i, d := range receive(t, q, 2, hold) {
				if string(d.Body) != string("ba"[i]) {
					t.Errorf("got %q, want %q", d.Body, "ba"[i])
				}
			}
		})
	}
}

func TestMovingMessageIsNotAckedLate(t *testing.T) {
	t.Parallel()
	b := open(t, connect(t, redistest.SharedServer(t).ClientOption()), &Options{Prefix: redistest.Prefix(t)})
	q, shelter := openQueue(t, b), openNamed(t, b, "shelter")
	send(t, q, "a")
	d := receive(t, q, 1, hold)[0]
	if _, err := q.Extend(t.Context(), []driver.Extension{{Receipt: d.Receipt}}); err != nil {
		t.Fatal(err)
	}
	c := deliverAll(t, q, reserve(t, q, shelter, 1))
	wantCode(t, q.AckLate(t.Context(), []driver.Receipt{d.Receipt}), driver.ErrReceiptExpired)
	wantStats(t, q, driver.Stats{InFlight: 1})
	if n, err := c.Finish(t.Context()); err != nil || n != 1 {
		t.Errorf("%d moved, error %v", n, err)
	}
	wantStats(t, q, driver.Stats{})
	wantStats(t, shelter, driver.Stats{Ready: 1})
}

func TestPurgeEndsStalledMoves(t *testing.T) {
	t.Parallel()
	b := open(t, connect(t, redistest.SharedServer(t).ClientOption()), &Options{Prefix: redistest.Prefix(t)})
	q, shelter := openQueue(t, b), openNamed(t, b, "shelter")
	send(t, q, "a")
	reserve(t, q, shelter, 1)
	stall(t, q)
	if n, err := q.Purge(t.Context()); err != nil || n != 1 {
		t.Fatalf("purged %d, error %v", n, err)
	}
	if n, err := b.server.Client.Do(t.Context(), b.server.Client.B().Zcard().Key(keyOf(q, "arrivals")).Build()).AsInt64(); err != nil || n != 0 {
		t.Errorf("%d notes are left, error %v", n, err)
	}
	wantStats(t, q, driver.Stats{})
}

func TestDamagedMessageDoesNotBlockMove(t *testing.T) {
	t.Parallel()
	b := open(t, connect(t, redistest.SharedServer(t).ClientOption()), &Options{Prefix: redistest.Prefix(t)})
	q, shelter := openQueue(t, b), openNamed(t, b, "shelter")
	ids := send(t, q, "a", "b", "c", "d")
	data := keyOf(q, "data")
	sent, err := b.server.Client.Do(t.Context(), b.server.Client.B().Hget().Key(data).Field(ids[1]).Build()).ToString()
	if err != nil {
		t.Fatal(err)
	}
	for id, damaged := range map[string]string{ids[1]: sent[:len(sent)-1] + "x", ids[2]: "short"} {
		if err := b.server.Client.Do(t.Context(), b.server.Client.B().Hset().Key(data).FieldValue().FieldValue(id, damaged).Build()).Error(); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := q.Move(t.Context(), "shelter", 0); err != nil || n != 2 {
		t.Errorf("%d moved, error %v; want 2", n, err)
	}
	wantStats(t, q, driver.Stats{Dead: 2})
	for _, dead := range deadLetters(t, q) {
		if dead.Reason != driver.ReasonIntegrity {
			t.Errorf("%s died of %s", dead.ID, dead.Reason)
		}
	}
	wantStats(t, shelter, driver.Stats{Ready: 2})
}

// useMoves moves messages there and back, and acks one of them late.
func useMoves(t *testing.T, b *Backend) {
	t.Helper()
	if err := b.ConfigureQueue(t.Context(), "from", driver.Config{Shards: 2, StrictGroups: true}); err != nil {
		t.Fatal(err)
	}
	from, to := openNamed(t, b, "from"), openNamed(t, b, "to")
	for i := range 4 {
		sendOne(t, from, driver.Outgoing{Group: fmt.Sprint(i), Attributes: map[string]string{driver.AttributeDeadSource: "to"}})
	}
	reserve(t, from, to, 1)
	stall(t, from)
	for target, want := range map[string]int{"to": 2, "": 2} {
		if n, err := from.Move(t.Context(), target, 2); err != nil || n != want {
			t.Fatalf("move to %q: %d moved, error %v; want %d", target, n, err, want)
		}
	}
	d := drainAll(t, to, 4)[0]
	if _, err := to.Extend(t.Context(), []driver.Extension{{Receipt: d.Receipt}}); err != nil {
		t.Fatal(err)
	}
	if err := to.AckLate(t.Context(), []driver.Receipt{d.Receipt}); err != nil {
		t.Fatal(err)
	}
	wantStats(t, from, driver.Stats{})
	wantStats(t, to, driver.Stats{InFlight: 3})
}

// TestMoveTakesFourCallsPerPage, and one call that finds no more messages.
func TestMoveTakesFourCallsPerPage(t *testing.T) {
	w := newWiretapped(t, driver.Config{})
	openNamed(t, w.backend, "shelter")
	for round := range 2 { // in the second round the scripts are loaded
		send(t, w, make([]string, 2*transfer.MovePage)...)
		w.heard()
		if n, err := w.Move(t.Context(), "shelter", 0); err != nil || n != 2*transfer.MovePage {
			t.Fatalf("%d moved, error %v", n, err)
		}
		if round == 1 {
			w.wantRequests(t, "a look at the target, two pages and the end", 1+2*4+1)
		}
	}
}

// TestMoveToSourcesLooksBehindHeldGroups: a limit counts messages that move, not those
// that cannot.
func TestMoveToSourcesLooksBehindHeldGroups(t *testing.T) {
	t.Parallel()
	b := open(t, connect(t, redistest.SharedServer(t).ClientOption()), &Options{Prefix: redistest.Prefix(t)})
	if err := b.ConfigureQueue(t.Context(), "dlq", driver.Config{StrictGroups: true}); err != nil {
		t.Fatal(err)
	}
	q, dlq := configured(t, b, driver.Config{DeadLetterTo: "dlq"}), openNamed(t, b, "dlq")
	for _, group := range []string{"held", "held", "held", "held", "free", "free"} {
		if _, err := q.Send(t.Context(), []driver.Outgoing{{Body: []byte(group), Group: group}}); err != nil {
			t.Fatal(err)
		}
		d := receive(t, q, 1, hold)[0]
		if err := q.DeadLetter(t.Context(), []driver.DeadLetterRequest{{Receipt: d.Receipt, Reason: driver.ReasonFatal}}); err != nil {
			t.Fatal(err)
		}
	}
	receive(t, dlq, 1, hold)
	if n, err := dlq.Move(t.Context(), "", 1); n != 1 || err != nil {
		t.Errorf("moved %d, error %v; want the first that is free", n, err)
	}
	if n, err := dlq.Move(t.Context(), "", 5); n != 1 || err != nil {
		t.Errorf("moved %d, error %v; want the other", n, err)
	}
	if n, err := dlq.Move(t.Context(), "", 1); n != 0 || err != nil {
		t.Errorf("moved %d, error %v; want none", n, err)
	}
	wantStats(t, dlq, driver.Stats{Ready: 3, InFlight: 1})
}

// TestMoveLeavesLivesOfMessagesThatStay: a message that could not move still dies when its time
// to live is over.
func TestMoveLeavesLivesOfMessagesThatStay(t *testing.T) {
	t.Parallel()
	client := connect(t, redistest.SharedServer(t).ClientOption())
	b := open(t, client, &Options{Prefix: redistest.Prefix(t)})
	openQueue(t, b)
	for _, strict := range []bool{false, true} {
		name := fmt.Sprint("dlq-", strict)
		if err := b.ConfigureQueue(t.Context(), name, driver.Config{StrictGroups: strict}); err != nil {
			t.Fatal(err)
		}
		q := openNamed(t, b, name)
		message := driver.Outgoing{Group: "g", TTL: hold, Attributes: map[string]string{driver.AttributeDeadSource: "orders"}}
		sent, err := q.Send(t.Context(), []driver.Outgoing{message, message})
		if err != nil {
			t.Fatal(err)
		}
		d := receive(t, q, 1, hold)[0]
		want := driver.Stats{Ready: 1, InFlight: 1}
		if !strict { // it is delayed when it is reserved
			if err := q.Nack(t.Context(), []driver.Nack{{Receipt: d.Receipt, Delay: hold}}); err != nil {
				t.Fatal(err)
			}
			receive(t, q, 1, hold)
			want = driver.Stats{Delayed: 1, InFlight: 1}
		}
		named := []string{sent[0].ID, "1", sent[1].ID, "1"}
		out, _, _, err := q.Shards[0].Reserve(t.Context(), shard.ReserveRequest{Target: shard.TargetNote(q.Queue), Hold: hold, Limit: 2, Named: named})
		if err != nil || len(out) > 0 {
			t.Fatalf("strict %v: reserved %d messages, error %v; want none", strict, len(out), err)
		}
		if n, err := q.Move(t.Context(), "", 0); n != 0 || err != nil {
			t.Fatalf("strict %v: moved %d, error %v; want none", strict, n, err)
		}
		wantStats(t, q, want)
		ends, err := client.Do(t.Context(), client.B().Zcard().Key(keyOf(q, "ends")).Build()).AsInt64()
		if err != nil || ends != 1 {
			t.Errorf("strict %v: %d messages are followed, error %v; want the one that waits", strict, ends, err)
		}
	}
}

// TestOldArrivalsAreForgottenGradually: the server runs one script at a time, and one move
// can bring a million messages.
func TestOldArrivalsAreForgottenGradually(t *testing.T) {
	t.Parallel()
	b := open(t, connect(t, redistest.SharedServer(t).ClientOption()), &Options{Prefix: redistest.Prefix(t), Defaults: driver.Config{MaxDeliveries: driver.Off}})
	q, shelter := openQueue(t, b), openNamed(t, b, "shelter")
	const old = 5000
	key, client := keyOf(shelter, "arrivals"), b.server.Client
	add := client.B().Zadd().Key(key).ScoreMember().ScoreMember(1, "0")
	for i := 1; i < old; i++ {
		add = add.ScoreMember(1, strconv.Itoa(i))
	}
	if err := client.Do(t.Context(), add.Build()).Error(); err != nil {
		t.Fatal(err)
	}
	left := func() int64 {
		n, err := client.Do(t.Context(), client.B().Zcount().Key(key).Min("1").Max("1").Build()).AsInt64()
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	send(t, q, "a")
	if n, err := q.Move(t.Context(), "shelter", 0); n != 1 || err != nil {
		t.Fatalf("moved %d, error %v", n, err)
	}
	if n := left(); n == old || n < old-3000 {
		t.Errorf("%d of %d are left after one message, want a few less", n, old)
	}
	for range 10 { // leases that end
		receive(t, shelter, 1, 0)
	}
	if n := left(); n > 0 {
		t.Errorf("%d of %d are left in the end", n, old)
	}
}
