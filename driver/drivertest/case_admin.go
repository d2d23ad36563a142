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
	{id: "SVC-1", title: "configuring a queue keeps its messages", needs: []need{needAdmin}, run: configuringKeepsMessages},
	{id: "SVC-1", title: "a new configuration holds for open handles", needs: []need{needAdmin}, run: configHoldsForOpenHandles},
	{id: "SVC-1", title: "a change that a live queue cannot make is refused, not ignored", needs: []need{needAdmin}, run: changeIsMadeOrRefused},
	{id: "SVC-1", title: "a bad configuration is refused and changes nothing", needs: []need{needAdmin}, run: badConfigIsRefused},
	{id: "SVC-1", title: "queues are listed by name, in order", needs: []need{needAdmin}, run: queuesAreListed},
	{id: "SVC-1", title: "a deleted queue is gone with all that was in it", needs: []need{needAdmin}, run: deletedQueueIsGone},
	{id: "SVC-1", title: "a handle on a deleted queue does not work on the next of that name", needs: []need{needAdmin}, run: deletedHandleStaysDeleted},
	{id: "SVC-1", title: "deleting a queue wakes its waiting receivers", needs: []need{needAdmin}, run: deletingWakes},
	{id: "SVC-1", title: "what is not there cannot be read or deleted", needs: []need{needAdmin}, run: unknownQueueIsNotFound},
	{id: "SVC-1", title: "a backend that can be pinged answers", run: pingAnswers},
}

func configIsReadBack(s *session, _ driver.Queue) {
	admin := s.opener.(driver.Admin)
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
	} {
		err := admin.ConfigureQueue(s.ctx(), field, config)
		if errors.Is(err, driver.ErrUnsupported) {
			s.t.Logf("refused: %v", err)
			continue
		}
		s.ok(err, "configure %s", field)
		got, err := admin.QueueConfig(s.ctx(), field)
		s.ok(err, "read the configuration back")
		if !configCovers(got, config) {
			s.failf("configuration with %s: got %+v, want %+v", field, got, config)
		}
	}
}

// configCovers reports whether got has the settings that want sets. What want
// leaves open may have become the backend's default.
func configCovers(got, want driver.Config) bool {
	covers := func(got, want int) bool { return want <= 0 || got == want }
	return covers(got.MaxDeliveries, want.MaxDeliveries) && covers(got.MaxMessages, want.MaxMessages) &&
		covers(got.MaxBytes, want.MaxBytes) && covers(got.MaxInFlight, want.MaxInFlight) &&
		covers(got.MaxDead, want.MaxDead) && covers(int(got.DedupWindow), int(want.DedupWindow)) &&
		covers(int(got.RetainReady.Age), int(want.RetainReady.Age)) && covers(got.RetainReady.Count, want.RetainReady.Count) &&
		covers(int(got.RetainDead.Age), int(want.RetainDead.Age)) && covers(got.RetainDead.Count, want.RetainDead.Count) &&
		covers(int(got.MaxHold), int(want.MaxHold))
}

func configuringKeepsMessages(s *session, q driver.Queue) {
	s.send(q, "a", "b")
	s.sendLater(q, s.hold, "c")
	held := s.expectNext(q, "a")
	if !s.reconfigure(driver.Config{MaxMessages: 100}) {
		return
	}
	s.expectStats(q, driver.Stats{Ready: 1, Delayed: 1, InFlight: 1})
	s.ack(q, held...)
	s.expectNext(q, "b")
}

// reconfigure changes the queue under test, and reports whether the backend
// can. What config leaves unset is off.
func (s *session) reconfigure(config driver.Config) bool {
	s.t.Helper()
	config = complete(config)
	err := s.opener.(driver.Admin).ConfigureQueue(s.ctx(), queueName, config)
	if errors.Is(err, driver.ErrUnsupported) {
		s.t.Logf("refused on a live queue: %v", err)
		return false
	}
	s.ok(err, "configure a live queue with %+v", config)
	return true
}

func configHoldsForOpenHandles(s *session, q driver.Queue) {
	other := s.open(queueName)
	s.send(q, "a", "b")
	if !s.reconfigure(driver.Config{MaxMessages: 2, DedupWindow: 42 * time.Minute}) {
		return
	}
	for _, handle := range []driver.Queue{q, other} {
		s.expectFull(trySend(s, handle, "c"), "send on a handle opened before the bound was set")
		if window := handle.Traits().DedupWindow; window != 42*time.Minute {
			s.failf("traits of a handle opened before: got a dedup window of %v, want the new one of %v", window, 42*time.Minute)
		}
	}
	if s.reconfigure(driver.Config{MaxMessages: 3}) {
		s.send(q, "c")
		s.expectFull(trySend(s, q, "d"), "send over the new bound")
	}
}

func changeIsMadeOrRefused(s *session, q driver.Queue) {
	s.send(q, "a")
	admin := s.opener.(driver.Admin)
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
		asked := s.reconfigure(change.config)
		config, err := admin.QueueConfig(s.ctx(), queueName)
		s.ok(err, "read the configuration")
		if made := change.made(config, q.Traits()); made != asked {
			s.failf("a change of %s on a live queue was refused: %v; but it was made: %v", field, !asked, made)
		}
	}
	s.expectStats(q, driver.Stats{Ready: 1})
	s.expectNext(q, "a")
}

func badConfigIsRefused(s *session, q driver.Queue) {
	admin := s.opener.(driver.Admin)
	before, err := admin.QueueConfig(s.ctx(), queueName)
	s.ok(err, "read the configuration")
	s.send(q, "a")
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
		{driver.Config{RetainReady: driver.Retention{Age: driver.MaxRetention + time.Second}}, driver.MaxRetention},
		{driver.Config{RetainDead: driver.Retention{Age: driver.MaxRetention + time.Second}}, driver.MaxRetention},
		{driver.Config{MaxHold: 10}, 0}, // a multiple, as it was before
		{driver.Config{DeadLetterTo: "{bad}"}, ""},
	} {
		err := admin.ConfigureQueue(s.ctx(), queueName, bad.config)
		s.expectInvalid(err, driver.ErrInvalid, fmt.Sprint(bad.limit), fmt.Sprintf("configure %+v", bad.config))
		after, err := admin.QueueConfig(s.ctx(), queueName)
		s.ok(err, "read the configuration")
		if after != before {
			s.failf("a refused configuration changed the queue's from %+v to %+v", before, after)
		}
	}
	s.expectStats(q, driver.Stats{Ready: 1})
	s.expectNext(q, "a")
}

// queues lists the names of all queues.
func (s *session) queues() []string {
	s.t.Helper()
	var names []string
	for name, err := range s.opener.(driver.Admin).Queues(s.ctx()) {
		s.ok(err, "list queues")
		names = append(names, name)
	}
	return names
}

func queuesAreListed(s *session, _ driver.Queue) {
	s.open("zebra")
	s.configure("apple", driver.Config{})
	s.open("mango")
	s.open("mango")
	want := []string{"apple", "mango", queueName, "zebra"}
	if got := s.queues(); !slices.Equal(got, want) {
		s.failf("list queues: got %q, want %q", got, want)
	}
	for range s.opener.(driver.Admin).Queues(s.ctx()) {
		break
	}
}

func deletedQueueIsGone(s *session, q driver.Queue) {
	s.send(q, "a", "b")
	held := s.receive(q, 1)[0]
	if q.Traits().DeadLetters {
		s.kill(s.open("invoices"), "dead")
	}
	if q.Traits().DedupWindow > 0 {
		s.sendOne(q, keyed("key", "body"))
	}
	admin := s.opener.(driver.Admin)
	for _, name := range []string{queueName, "invoices"} {
		s.open(name)
		s.ok(admin.DeleteQueue(s.ctx(), name), "delete %q", name)
	}
	if got := s.queues(); len(got) != 0 {
		s.failf("list queues after deleting them: got %q", got)
	}
	_, err := q.Stats(s.ctx())
	s.expectCode(err, driver.ErrNotFound, "stats on a handle of a deleted queue")
	s.expectCode(trySend(s, q, "c"), driver.ErrNotFound, "send on a handle of a deleted queue")
	_, err = q.Receive(s.ctx(), driver.ReceiveRequest{Max: 1, Visibility: s.hold})
	s.expectCode(err, driver.ErrNotFound, "receive on a handle of a deleted queue")
	s.expectCode(tryAck(s, q, held), driver.ErrNotFound, "ack on a handle of a deleted queue")
	s.ok(q.Close(), "close a handle of a deleted queue")

	for _, name := range []string{queueName, "invoices"} {
		s.expectEmpty(s.configure(name, driver.Config{}))
	}
	again := s.open(queueName)
	s.expectCode(tryAck(s, again, held), driver.ErrReceiptExpired, "ack in a new queue with a receipt of the deleted one")
	if again.Traits().DedupWindow > 0 {
		s.expectFresh(again, keyed("key", "body"), "in a new queue, that was used in the deleted one")
	}
}

func deletedHandleStaysDeleted(s *session, q driver.Queue) {
	s.send(q, "a", "b")
	held := s.receive(q, 1)[0]
	unused := s.open(queueName)
	s.ok(s.opener.(driver.Admin).DeleteQueue(s.ctx(), queueName), "delete")
	next := s.configure(queueName, driver.Config{})
	s.send(next, "new")
	if s.backend.ByName {
		s.expectNext(q, "new")
		return
	}
	for what, handle := range map[string]driver.Queue{"used": q, "unused": unused} {
		for op, err := range useHandle(s, handle, held) {
			s.expectCode(err, driver.ErrNotFound, fmt.Sprintf("%s on a handle (%s before) whose queue was deleted and created again", op, what))
		}
		s.ok(handle.Close(), "close a handle of a deleted queue")
	}
	s.expectStats(next, driver.Stats{Ready: 1})
	s.expectNext(next, "new")
	s.expectNext(s.open(queueName))
}

// useHandle returns the outcome of each operation that a handle has. None of them changes
// a queue that held is not of, except a send.
func useHandle(s *session, q driver.Queue, held driver.Delivery) map[string]error {
	errs := map[string]error{
		"ack":    tryAck(s, q, held),
		"nack":   tryNack(s, q, held, 0, "cause"),
		"extend": tryExtend(s, q, held, s.hold),
		"send":   trySend(s, q, "c"),
	}
	_, errs["stats"] = q.Stats(s.ctx())
	_, errs["receive"] = q.Receive(s.ctx(), driver.ReceiveRequest{Max: 1, Visibility: s.hold})
	_, errs["waiting receive"] = q.Receive(s.ctx(), driver.ReceiveRequest{Max: 1, Visibility: s.hold, Wait: s.hold})
	_, errs["purge"] = q.Purge(s.ctx())
	if q.Traits().DeadLetters {
		_, errs["redrive"] = q.Redrive(s.ctx(), nil, 0)
		_, errs["purge of dead letters"] = q.PurgeDead(s.ctx())
		errs["list of dead letters"] = firstError(q.DeadLetters(s.ctx()))
	}
	if q.Traits().Peek {
		errs["peek"] = firstError(q.Peek(s.ctx(), driver.Query{}))
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

func deletingWakes(s *session, q driver.Queue) {
	waiting := s.receiveInBackground(s.ctx(), q, 1)
	s.ok(s.opener.(driver.Admin).DeleteQueue(s.ctx(), queueName), "delete")
	s.expectCode(s.await(waiting, "delete").err, driver.ErrNotFound, "a receive whose queue is deleted")
}

func unknownQueueIsNotFound(s *session, _ driver.Queue) {
	admin := s.opener.(driver.Admin)
	_, err := admin.QueueConfig(s.ctx(), "nowhere")
	s.expectCode(err, driver.ErrNotFound, "read the configuration of an unknown queue")
	s.expectCode(admin.DeleteQueue(s.ctx(), "nowhere"), driver.ErrNotFound, "delete an unknown queue")
	if got := s.queues(); slices.Contains(got, "nowhere") {
		s.failf("asking for an unknown queue has made it: %q", got)
	}
}

func pingAnswers(s *session, _ driver.Queue) {
	pinger, ok := s.opener.(driver.Pinger)
	if !ok {
		s.t.Log("the opener does not implement Pinger")
		return
	}
	s.ok(pinger.Ping(s.ctx()), "ping")
	if opener, ok := s.opener.(closer); ok {
		s.ok(opener.Close(), "close the opener")
		s.expectCode(pinger.Ping(s.ctx()), driver.ErrClosed, "ping a closed opener")
	}
}
