package drivertest

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

var adminCases = []testCase{
	{id: "SVC-1", title: "a configuration is in force and can be read back", needs: []need{needAdmin}, run: configIsReadBack},
	{id: "SVC-1", title: "a new configuration holds for open handles", needs: []need{needAdmin}, run: configHoldsForOpenHandles},
	{id: "SVC-1", title: "a change that a live queue cannot make is refused, not ignored", needs: []need{needAdmin}, run: changeIsMadeOrRefused},
	{id: "SVC-1", title: "a bad configuration is refused and changes nothing", needs: []need{needAdmin}, run: badConfigIsRefused},
	{id: "SVC-1", title: "a deleted queue is gone with all that was in it", needs: []need{needAdmin}, run: deletedQueueIsGone},
	{id: "SVC-1", title: "a handle on a deleted queue does not work on the next of that name", needs: []need{needAdmin}, run: deletedHandleStaysDeleted},
	{id: "SVC-1", title: "a missing queue cannot be read or deleted", needs: []need{needAdmin}, run: unknownQueueIsNotFound},
	{id: "SVC-1", title: "a backend that can be pinged answers", run: pingAnswers},
}

func configIsReadBack(e *env, _ driver.Queue) {
	admin := e.opener.(driver.Admin)
	for field, config := range map[string]driver.Config{
		"MaxDeliveries": {MaxDeliveries: 7},
		"MaxMessages":   {MaxMessages: 1000},
		"MaxBytes":      {MaxBytes: 1 << 30},
		"MaxInFlight":   {MaxInFlight: 100},
		"MaxDead":       {MaxDead: 100},
		"DedupWindow":   {DedupWindow: time.Hour},
		"RetainReady":   {RetainReady: driver.Retention{Age: time.Hour, Count: 10}},
		"RetainDead":    {RetainDead: driver.Retention{Age: time.Hour, Count: 10}},
		"MaxHold":       {MaxHold: 10 * time.Minute},
		"TTL":           {TTL: 10 * time.Minute},
		"PriorityAging": {PriorityAging: 10 * time.Minute},
	} {
		err := admin.ConfigureQueue(e.ctx(), field, config)
		if errors.Is(err, driver.ErrUnsupported) {
			e.t.Logf("refused: %v", err)
			continue
		}
		e.ok(err, "configure %s", field)
		got, err := admin.QueueConfig(e.ctx(), field)
		e.ok(err, "read the configuration back")
		if !configCovers(got, config) {
			e.failf("configuration with %s: got %+v, want %+v", field, got, config)
		}
	}
}

// configCovers reports whether got has the settings that want sets. Settings that want leaves
// unset may have become the backend's default.
func configCovers(got, want driver.Config) bool {
	covers := func(got, want int) bool { return want <= 0 || got == want }
	return covers(got.MaxDeliveries, want.MaxDeliveries) && covers(got.MaxMessages, want.MaxMessages) &&
		covers(got.MaxBytes, want.MaxBytes) && covers(got.MaxInFlight, want.MaxInFlight) &&
		covers(got.MaxDead, want.MaxDead) && covers(int(got.DedupWindow), int(want.DedupWindow)) &&
		covers(int(got.RetainReady.Age), int(want.RetainReady.Age)) && covers(got.RetainReady.Count, want.RetainReady.Count) &&
		covers(int(got.RetainDead.Age), int(want.RetainDead.Age)) && covers(got.RetainDead.Count, want.RetainDead.Count) &&
		covers(int(got.MaxHold), int(want.MaxHold)) && covers(int(got.TTL), int(want.TTL)) &&
		covers(int(got.PriorityAging), int(want.PriorityAging))
}

// reconfigure changes the queue under test, and reports whether the backend can. Settings that
// config leaves unset are off.
func (e *env) reconfigure(config driver.Config) bool {
	e.t.Helper()
	config = complete(config)
	err := e.opener.(driver.Admin).ConfigureQueue(e.ctx(), queueName, config)
	if errors.Is(err, driver.ErrUnsupported) {
		e.t.Logf("refused on a live queue: %v", err)
		return false
	}
	e.ok(err, "configure a live queue with %+v", config)
	return true
}

func configHoldsForOpenHandles(e *env, q driver.Queue) {
	other := e.open(queueName)
	e.send(q, "a", "b")
	if !e.reconfigure(driver.Config{MaxMessages: 2, DedupWindow: 42 * time.Minute}) {
		return
	}
	for _, handle := range []driver.Queue{q, other} {
		e.expectFull(trySend(e, handle, "c"), "send on a handle opened before the bound was set")
		if window := handle.Traits().DedupWindow; window != 42*time.Minute {
			e.failf("traits of a handle opened before: got a dedup window of %v, want the new one of %v", window, 42*time.Minute)
		}
	}
	if e.reconfigure(driver.Config{MaxMessages: 3}) {
		e.send(q, "c")
		e.expectFull(trySend(e, q, "d"), "send over the new bound")
	}
}

func changeIsMadeOrRefused(e *env, q driver.Queue) {
	e.send(q, "a")
	admin := e.opener.(driver.Admin)
	for field, change := range map[string]struct {
		config driver.Config
		made   func(config driver.Config, traits driver.Traits) bool
	}{
		"Shards": {driver.Config{Shards: 8}, func(config driver.Config, traits driver.Traits) bool {
			return config.Shards == 8 && traits.Ordering != driver.OrderingFIFO
		}},
		"StrictGroups": {driver.Config{StrictGroups: true}, func(config driver.Config, traits driver.Traits) bool {
			return config.StrictGroups && traits.StrictGroups
		}},
		"FairGroups": {driver.Config{FairGroups: true}, func(config driver.Config, traits driver.Traits) bool {
			return config.FairGroups && traits.FairGroups
		}},
	} {
		asked := e.reconfigure(change.config)
		config, err := admin.QueueConfig(e.ctx(), queueName)
		e.ok(err, "read the configuration")
		if made := change.made(config, q.Traits()); made != asked {
			e.failf("a change of %s on a live queue was refused: %v; but it was made: %v", field, !asked, made)
		}
	}
	e.expectStats(q, driver.Stats{Ready: 1})
	e.expectNext(q, "a")
}

func badConfigIsRefused(e *env, q driver.Queue) {
	admin := e.opener.(driver.Admin)
	before, err := admin.QueueConfig(e.ctx(), queueName)
	e.ok(err, "read the configuration")
	e.send(q, "a")
	for _, bad := range []struct {
		config driver.Config
		limit  any
	}{
		{driver.Config{Shards: -1}, driver.MaxShards},
		{driver.Config{Shards: driver.MaxShards + 1}, driver.MaxShards},
		{driver.Config{MaxDeliveries: -2}, 0},
		{driver.Config{MaxMessages: -2}, 0},
		{driver.Config{MaxBytes: -2}, 0},
		{driver.Config{MaxInFlight: -2}, 0},
		{driver.Config{MaxDead: -2}, 0},
		{driver.Config{DedupWindow: -2}, 0},
		{driver.Config{DedupMax: -2}, 0},
		{driver.Config{RetainReady: driver.Retention{Age: -2}}, 0},
		{driver.Config{RetainReady: driver.Retention{Count: -2}}, 0},
		{driver.Config{RetainDead: driver.Retention{Age: -2}}, 0},
		{driver.Config{RetainDead: driver.Retention{Count: -2}}, 0},
		{driver.Config{MaxHold: -2}, 0},
		{driver.Config{TTL: -2}, 0},
		{driver.Config{PriorityAging: -2}, 0},
		{driver.Config{PriorityAging: time.Microsecond}, time.Millisecond},
		{driver.Config{TTL: driver.MaxTTL + time.Second}, driver.MaxTTL},
		{driver.Config{RetainReady: driver.Retention{Age: driver.MaxRetention + time.Second}}, driver.MaxRetention},
		{driver.Config{RetainDead: driver.Retention{Age: driver.MaxRetention + time.Second}}, driver.MaxRetention},
		{driver.Config{MaxHold: 10}, 0}, // a plain number, the old unit of MaxHold
		{driver.Config{DeadLetterTo: "{bad}"}, ""},
	} {
		err := admin.ConfigureQueue(e.ctx(), queueName, bad.config)
		e.expectInvalid(err, driver.ErrInvalid, fmt.Sprint(bad.limit), fmt.Sprintf("configure %+v", bad.config))
		after, err := admin.QueueConfig(e.ctx(), queueName)
		e.ok(err, "read the configuration")
		if after != before {
			e.failf("a refused configuration changed the queue's from %+v to %+v", before, after)
		}
	}
	e.expectStats(q, driver.Stats{Ready: 1})
	e.expectNext(q, "a")
}

// queues lists the names of all queues.
func (e *env) queues() []string {
	e.t.Helper()
	var names []string
	for name, err := range e.opener.(driver.Admin).Queues(e.ctx()) {
		e.ok(err, "list queues")
		names = append(names, name)
	}
	return names
}

func deletedQueueIsGone(e *env, q driver.Queue) {
	e.send(q, "a", "b")
	held := e.receive(q, 1)[0]
	if q.Traits().DeadLetters {
		e.kill(e.open("invoices"), "dead")
	}
	if q.Traits().DedupWindow > 0 {
		e.sendOne(q, keyed("key", "body"))
	}
	admin := e.opener.(driver.Admin)
	for _, name := range []string{queueName, "invoices"} {
		e.open(name)
		e.ok(admin.DeleteQueue(e.ctx(), name), "delete %q", name)
	}
	if got := e.queues(); len(got) != 0 {
		e.failf("list queues after deleting them: got %q", got)
	}
	_, err := q.Stats(e.ctx())
	e.expectCode(err, driver.ErrNotFound, "stats on a handle of a deleted queue")
	e.expectCode(trySend(e, q, "c"), driver.ErrNotFound, "send on a handle of a deleted queue")
	_, err = q.Receive(e.ctx(), driver.ReceiveRequest{Max: 1, Visibility: e.hold})
	e.expectCode(err, driver.ErrNotFound, "receive on a handle of a deleted queue")
	e.expectCode(tryAck(e, q, held), driver.ErrNotFound, "ack on a handle of a deleted queue")
	e.ok(q.Close(), "close a handle of a deleted queue")

	for _, name := range []string{queueName, "invoices"} {
		e.expectEmpty(e.configure(name, driver.Config{}))
	}
	again := e.open(queueName)
	e.expectCode(tryAck(e, again, held), driver.ErrReceiptExpired, "ack in a new queue with a receipt of the deleted one")
	if again.Traits().DedupWindow > 0 {
		e.expectFresh(again, keyed("key", "body"), "in a new queue, that was used in the deleted one")
	}
}

func deletedHandleStaysDeleted(e *env, q driver.Queue) {
	e.send(q, "a", "b")
	held := e.receive(q, 1)[0]
	unused := e.open(queueName)
	e.ok(e.opener.(driver.Admin).DeleteQueue(e.ctx(), queueName), "delete")
	next := e.configure(queueName, driver.Config{})
	e.send(next, "new")
	if e.backend.ByName {
		e.expectNext(q, "new")
		return
	}
	for what, handle := range map[string]driver.Queue{"used": q, "unused": unused} {
		for op, err := range useHandle(e, handle, held) {
			e.expectCode(err, driver.ErrNotFound, fmt.Sprintf("%s on a handle (%s before) whose queue was deleted and created again", op, what))
		}
		e.ok(handle.Close(), "close a handle of a deleted queue")
	}
	e.expectStats(next, driver.Stats{Ready: 1})
	e.expectNext(next, "new")
	e.expectNext(e.open(queueName))
}

// useHandle returns the outcome of each operation of a handle. Unless held is a delivery of
// that queue, only the send changes it.
func useHandle(e *env, q driver.Queue, held driver.Delivery) map[string]error {
	errs := map[string]error{
		"ack":    tryAck(e, q, held),
		"nack":   tryNack(e, q, held, 0, "cause"),
		"extend": tryExtend(e, q, held, e.hold),
		"send":   trySend(e, q, "c"),
	}
	_, errs["stats"] = q.Stats(e.ctx())
	_, errs["receive"] = q.Receive(e.ctx(), driver.ReceiveRequest{Max: 1, Visibility: e.hold})
	_, errs["waiting receive"] = q.Receive(e.ctx(), driver.ReceiveRequest{Max: 1, Visibility: e.hold, Wait: e.hold})
	_, errs["purge"] = q.Purge(e.ctx())
	if q.Traits().DeadLetters {
		_, errs["redrive"] = q.Redrive(e.ctx(), nil, 0)
		_, errs["purge of dead letters"] = q.PurgeDead(e.ctx())
		errs["list of dead letters"] = firstError(q.DeadLetters(e.ctx()))
	}
	if q.Traits().Peek {
		errs["peek"] = firstError(q.Peek(e.ctx(), driver.Query{}))
	}
	return errs
}

func firstError[T any](elements iter.Seq2[T, error]) error {
	for _, err := range elements {
		if err != nil {
			return err
		}
	}
	return nil
}

func unknownQueueIsNotFound(e *env, _ driver.Queue) {
	admin := e.opener.(driver.Admin)
	_, err := admin.QueueConfig(e.ctx(), "nowhere")
	e.expectCode(err, driver.ErrNotFound, "read the configuration of an unknown queue")
	e.expectCode(admin.DeleteQueue(e.ctx(), "nowhere"), driver.ErrNotFound, "delete an unknown queue")
	if got := e.queues(); slices.Contains(got, "nowhere") {
		e.failf("asking for an unknown queue has made it: %q", got)
	}
}

func pingAnswers(e *env, _ driver.Queue) {
	pinger, ok := e.opener.(driver.Pinger)
	if !ok {
		e.t.Log("the opener does not implement Pinger")
		return
	}
	e.ok(pinger.Ping(e.ctx()), "ping")
	if opener, ok := e.opener.(closer); ok {
		e.ok(opener.Close(), "close the opener")
		e.expectCode(pinger.Ping(e.ctx()), driver.ErrClosed, "ping a closed opener")
	}
}
