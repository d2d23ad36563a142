package drivertest

import (
	"context"
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/queuemodel"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
)

func TestModelAgreesWithItself(t *testing.T) {
	volume.Repeats(t)
	RunRandom(t, modelBackend(nil), volume.Of(20_000))
}

func TestModelAgreesWithItselfOnTheRealClock(t *testing.T) {
	volume.Repeats(t)
	b := modelBackend(nil)
	b.Virtual = false
	RunRandom(t, b, volume.Of(20_000))
}

func TestModelAgreesWithAModelThatRestarts(t *testing.T) {
	volume.Repeats(t)
	restarting, restarts := modelBackend(nil), 0
	restarting.Crashes = []Crash{CrashClean, CrashKill, CrashPower}
	restarting.Restart = func(_ testing.TB, old driver.Opener, _ Crash) driver.Opener {
		restarts++
		return old
	}
	RunAgainst(t, modelBackend(nil), restarting, volume.Of(10_000))
	if restarts == 0 {
		t.Error("nothing was restarted")
	}
}

// failures is a rapid.TB that collects failures.
type failures struct {
	testing.TB
	failed bool
	text   strings.Builder
}

func (f *failures) Errorf(format string, args ...any) {
	f.failed = true
	fmt.Fprintf(&f.text, format, args...)
}
func (f *failures) Failed() bool              { return f.failed }
func (f *failures) FailNow()                  {}
func (f *failures) Logf(string, ...any)       {}
func (f *failures) Error(args ...any)         { f.Errorf("%s", fmt.Sprint(args...)) }
func (f *failures) Fatalf(s string, a ...any) { f.Errorf(s, a...) }

// setFlag sets a flag of rapid for the rest of the test.
func setFlag(t *testing.T, name, value string) {
	t.Helper()
	old := flag.Lookup(name).Value.String()
	if err := flag.Set(name, value); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = flag.Set(name, old) })
}

// provoke runs programs on a faulty backend, and returns the failure.
func provoke(t *testing.T, b Backend, steps int) string {
	t.Helper()
	setFlag(t, "rapid.nofailfile", "true")
	f := &failures{TB: t}
	a := abilityOf(t, b)
	runner := newProgramRunner(t, b)
	runPrograms(t, f, a, steps, func(p *plan) error {
		got, err := runner.run(p.program)
		if err != nil {
			return err
		}
		return compare(p.program, "the model", p.want, got, !a.untimed)
	})
	return f.text.String()
}

// A mutant is a model with one defect. A method that is set replaces the queue's own.
type mutant struct {
	*queuemodel.Queue
	send       func(q *queuemodel.Queue, msgs []driver.Outgoing) ([]driver.Sent, error)
	receive    func(q *queuemodel.Queue, req driver.ReceiveRequest) ([]driver.Delivery, error)
	ack        func(q *queuemodel.Queue, receipts []driver.Receipt) error
	nack       func(q *queuemodel.Queue, nacks []driver.Nack) error
	extend     func(q *queuemodel.Queue, extensions []driver.Extension) ([]time.Duration, error)
	deadLetter func(q *queuemodel.Queue, requests []driver.DeadLetterRequest) error
	redrive    func(q *queuemodel.Queue, ids []string, limit int) (int, error)
	ackLate    func(q *queuemodel.Queue, receipts []driver.Receipt) error
	move       func(q *queuemodel.Queue, to string, limit int) (int, error)
	purge      func(q *queuemodel.Queue) (int, error)
	stats      func(q *queuemodel.Queue) (driver.Stats, error)
}

func (m *mutant) Send(ctx context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
	if m.send != nil {
		return m.send(m.Queue, msgs)
	}
	return m.Queue.Send(ctx, msgs)
}

func (m *mutant) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	if m.receive != nil {
		return m.receive(m.Queue, req)
	}
	return m.Queue.Receive(ctx, req)
}

func (m *mutant) Ack(ctx context.Context, receipts []driver.Receipt) error {
	if m.ack != nil {
		return m.ack(m.Queue, receipts)
	}
	return m.Queue.Ack(ctx, receipts)
}

func (m *mutant) Nack(ctx context.Context, nacks []driver.Nack) error {
	if m.nack != nil {
		return m.nack(m.Queue, nacks)
	}
	return m.Queue.Nack(ctx, nacks)
}

func (m *mutant) Extend(ctx context.Context, extensions []driver.Extension) ([]time.Duration, error) {
	if m.extend != nil {
		return m.extend(m.Queue, extensions)
	}
	return m.Queue.Extend(ctx, extensions)
}

func (m *mutant) DeadLetter(ctx context.Context, requests []driver.DeadLetterRequest) error {
	if m.deadLetter != nil {
		return m.deadLetter(m.Queue, requests)
	}
	return m.Queue.DeadLetter(ctx, requests)
}

func (m *mutant) AckLate(ctx context.Context, receipts []driver.Receipt) error {
	if m.ackLate != nil {
		return m.ackLate(m.Queue, receipts)
	}
	return m.Queue.AckLate(ctx, receipts)
}

func (m *mutant) Move(ctx context.Context, to string, limit int) (int, error) {
	if m.move != nil {
		return m.move(m.Queue, to, limit)
	}
	return m.Queue.Move(ctx, to, limit)
}

func (m *mutant) Redrive(ctx context.Context, ids []string, limit int) (int, error) {
	if m.redrive != nil {
		return m.redrive(m.Queue, ids, limit)
	}
	return m.Queue.Redrive(ctx, ids, limit)
}

func (m *mutant) Purge(ctx context.Context) (int, error) {
	if m.purge != nil {
		return m.purge(m.Queue)
	}
	return m.Queue.Purge(ctx)
}

func (m *mutant) Stats(ctx context.Context) (driver.Stats, error) {
	if m.stats != nil {
		return m.stats(m.Queue)
	}
	return m.Queue.Stats(ctx)
}

// mutants each break one rule.
var mutants = []struct {
	name string
	mutant
}{
	{"a nack keeps the place", mutant{nack: func(q *queuemodel.Queue, nacks []driver.Nack) error {
		places := make(map[*queuemodel.Message]uint64)
		for _, msg := range q.Model.Waiting {
			places[msg] = msg.Place
		}
		err := q.Nack(context.Background(), nacks)
		for _, msg := range q.Model.Waiting {
			msg.Place = places[msg]
		}
		return err
	}}},
	{"an expired message goes to the tail", mutant{receive: func(q *queuemodel.Queue, req driver.ReceiveRequest) ([]driver.Delivery, error) {
		leased := make(map[*queuemodel.Message]bool)
		for _, msg := range q.Model.Waiting {
			leased[msg] = msg.Leased
		}
		_, _ = q.Stats(context.Background()) // ends expired leases
		for _, msg := range q.Model.Waiting {
			if leased[msg] && !msg.Leased {
				q.Model.Place++
				msg.Place = q.Model.Place
			}
		}
		return q.Receive(context.Background(), req)
	}}},
	{"a delayed message gets its place when it is due", mutant{receive: func(q *queuemodel.Queue, req driver.ReceiveRequest) ([]driver.Delivery, error) {
		var delayed []*queuemodel.Message
		for _, msg := range q.Model.Waiting {
			if msg.Deliveries == 0 && msg.Delayed {
				delayed = append(delayed, msg)
			}
		}
		_, _ = q.Stats(context.Background())
		for _, msg := range delayed {
			if !msg.Delayed {
				q.Model.Place++
				msg.Place = q.Model.Place
			}
		}
		return q.Receive(context.Background(), req)
	}}},
	{"a receive takes one too many", mutant{receive: func(q *queuemodel.Queue, req driver.ReceiveRequest) ([]driver.Delivery, error) {
		req.Max++
		return q.Receive(context.Background(), req)
	}}},
	{"a receive ignores MaxBytes", mutant{receive: func(q *queuemodel.Queue, req driver.ReceiveRequest) ([]driver.Delivery, error) {
		req.MaxBytes = 0
		return q.Receive(context.Background(), req)
	}}},
	{"a receive does not wait", mutant{receive: func(q *queuemodel.Queue, req driver.ReceiveRequest) ([]driver.Delivery, error) {
		req.Wait = 0
		return q.Receive(context.Background(), req)
	}}},
	{"a visibility of 0 lasts a second", mutant{receive: func(q *queuemodel.Queue, req driver.ReceiveRequest) ([]driver.Delivery, error) {
		if req.Visibility == 0 {
			req.Visibility = time.Second
		}
		return q.Receive(context.Background(), req)
	}}},
	{"a delivery is a nanosecond longer", mutant{receive: func(q *queuemodel.Queue, req driver.ReceiveRequest) ([]driver.Delivery, error) {
		req.Visibility++
		return q.Receive(context.Background(), req)
	}}},
	{"the first delivery is that of this life", mutant{redrive: func(q *queuemodel.Queue, ids []string, limit int) (int, error) {
		moved, err := q.Redrive(context.Background(), ids, limit)
		for _, msg := range q.Model.Waiting {
			if msg.Redrives > 0 && msg.Deliveries == 0 {
				msg.FirstReceivedAt = time.Time{}
			}
		}
		return moved, err
	}}},
	{"a redrive keeps the place", mutant{redrive: func(q *queuemodel.Queue, ids []string, limit int) (int, error) {
		places := make(map[*queuemodel.Message]uint64)
		for _, msg := range q.Model.Dead {
			places[msg] = msg.Place
		}
		moved, err := q.Redrive(context.Background(), ids, limit)
		for _, msg := range q.Model.Waiting {
			if old, ok := places[msg]; ok {
				msg.Place = old
			}
		}
		return moved, err
	}}},
	{"a redrive of no ids moves all", mutant{redrive: func(q *queuemodel.Queue, ids []string, limit int) (int, error) {
		if len(ids) == 0 {
			ids = nil
		}
		return q.Redrive(context.Background(), ids, limit)
	}}},
	{"an ack works twice", mutant{ack: func(q *queuemodel.Queue, receipts []driver.Receipt) error {
		_ = q.Ack(context.Background(), receipts)
		return nil
	}}},
	{"an extension cannot shorten", mutant{extend: func(q *queuemodel.Queue, extensions []driver.Extension) ([]time.Duration, error) {
		for i, e := range extensions {
			if msg := q.Model.Held(e.Receipt); msg != nil {
				extensions[i].Visibility = max(e.Visibility, msg.Deadline-q.Model.Now)
			}
		}
		return q.Extend(context.Background(), extensions)
	}}},
	{"an extension knows no MaxHold", mutant{extend: func(q *queuemodel.Queue, extensions []driver.Extension) ([]time.Duration, error) {
		for _, msg := range q.Model.Waiting {
			msg.HoldUntil = 0
		}
		return q.Extend(context.Background(), extensions)
	}}},
	{"a dead letter forgets its error", mutant{deadLetter: func(q *queuemodel.Queue, requests []driver.DeadLetterRequest) error {
		for i := range requests {
			requests[i].Error = ""
		}
		return q.DeadLetter(context.Background(), requests)
	}}},
	{"a dead letter needs no room", mutant{deadLetter: func(q *queuemodel.Queue, requests []driver.DeadLetterRequest) error {
		most := q.Model.Config.MaxDead
		q.Model.Config.MaxDead = 0
		err := q.DeadLetter(context.Background(), requests)
		q.Model.Config.MaxDead = most
		return err
	}}},
	{"a send fits when there is no room", mutant{send: func(q *queuemodel.Queue, msgs []driver.Outgoing) ([]driver.Sent, error) {
		if q.Model.Config.MaxMessages == 0 {
			return q.Send(context.Background(), msgs)
		}
		q.Model.Config.MaxMessages++
		sent, err := q.Send(context.Background(), msgs)
		q.Model.Config.MaxMessages--
		return sent, err
	}}},
	{"a full queue gives no hint", mutant{send: func(q *queuemodel.Queue, msgs []driver.Outgoing) ([]driver.Sent, error) {
		sent, err := q.Send(context.Background(), msgs)
		for i := range msgs {
			if failed, ok := driver.At(err, i).(*driver.Error); ok { //nolint:errorlint // made by the model
				failed.RetryAfter = 0
			}
		}
		return sent, err
	}}},
	{"a repeat extends the dedup window", mutant{send: func(q *queuemodel.Queue, msgs []driver.Outgoing) ([]driver.Sent, error) {
		sent, err := q.Send(context.Background(), msgs)
		for i := range q.Model.Keys {
			for j := range sent {
				if known := &q.Model.Keys[i]; sent[j].Duplicate && known.ID == sent[j].ID {
					known.End = q.Model.Now + q.Model.Traits.DedupWindow
				}
			}
		}
		return sent, err
	}}},
	{"a purge empties the dedup table", mutant{purge: func(q *queuemodel.Queue) (int, error) {
		removed, err := q.Purge(context.Background())
		q.Model.Keys = nil
		return removed, err
	}}},
	{"a purge forgets what is in flight", mutant{purge: func(q *queuemodel.Queue) (int, error) {
		var kept []*queuemodel.Message
		for _, msg := range q.Model.Waiting {
			if msg.Leased {
				kept = append(kept, msg)
			}
		}
		removed, err := q.Purge(context.Background())
		q.Model.Waiting = kept
		return removed, err
	}}},
	{"a late ack works only for the latest delivery", mutant{ackLate: func(q *queuemodel.Queue, receipts []driver.Receipt) error {
		for _, msg := range q.Model.Waiting {
			msg.Given = msg.Given[max(len(msg.Given)-1, 0):]
		}
		return q.AckLate(context.Background(), receipts)
	}}},
	{"a late ack is refused", mutant{ackLate: func(q *queuemodel.Queue, receipts []driver.Receipt) error {
		return q.Ack(context.Background(), receipts)
	}}},
	{"a move keeps the deliveries", mutant{move: func(q *queuemodel.Queue, to string, limit int) (int, error) {
		before := make(map[*queuemodel.Message]int)
		for _, msg := range q.Model.Waiting {
			before[msg] = msg.Deliveries
		}
		moved, err := q.Move(context.Background(), to, limit)
		for _, msg := range q.Find(to).Model.Waiting {
			msg.Deliveries = max(msg.Deliveries, before[msg])
		}
		return moved, err
	}}},
	{"a move passes over the first", mutant{move: func(q *queuemodel.Queue, to string, limit int) (int, error) {
		if ready := q.Model.Movable(); len(ready) > 1 {
			q.Model.Place++
			ready[0].Place = q.Model.Place
		}
		return q.Move(context.Background(), to, limit)
	}}},
	{"a delayed message counts as ready", mutant{stats: func(q *queuemodel.Queue) (driver.Stats, error) {
		stats, err := q.Stats(context.Background())
		stats.Ready, stats.Delayed = stats.Ready+stats.Delayed, 0
		return stats, err
	}}},
}

func TestRandomProgramsFindEveryMutant(t *testing.T) {
	volume.InFull(t)
	setFlag(t, "rapid.shrinktime", "1ms") // shortening is not tested here
	for _, test := range mutants {
		t.Run(test.name, func(t *testing.T) {
			spoil := func(q *queuemodel.Queue) driver.Queue {
				m := test.mutant
				m.Queue = q
				return &m
			}
			if failure := provoke(t, modelBackend(spoil), 100_000); failure == "" {
				t.Error("nothing was found")
			}
		})
	}
}

func TestFailingProgramIsShortAndReadable(t *testing.T) {
	volume.InFull(t)
	setFlag(t, "rapid.seed", "6") // how far a program shrinks depends on the seed; this tests the output
	setFlag(t, "rapid.shrinktime", "5m")
	failure := provoke(t, modelBackend(func(q *queuemodel.Queue) driver.Queue {
		m := mutants[0].mutant
		m.Queue = q
		return &m
	}), 100_000)
	for _, want := range []string{"== RULE title\n", "\nsend ", "\nreceive max=", "\nnack d1", "differs from the model", "----\n", "got:", "-rapid.seed="} {
		if !strings.Contains(failure, want) {
			t.Errorf("the failure lacks %q:\n%s", want, failure)
		}
	}
	if strings.Count(failure, "----\n") > 8 {
		t.Errorf("the program is longer than needed:\n%s", failure)
	}
}

func TestPanicIsReportedWithItsProgram(t *testing.T) {
	setFlag(t, "rapid.shrinktime", "1s")
	failure := provoke(t, modelBackend(func(q *queuemodel.Queue) driver.Queue {
		return &mutant{Queue: q, purge: func(*queuemodel.Queue) (int, error) { panic("out of paper") }}
	}), 100_000)
	for _, want := range []string{"panics: out of paper", "\npurge\n", "-rapid.seed="} {
		if !strings.Contains(failure, want) {
			t.Errorf("the failure lacks %q:\n%s", want, failure)
		}
	}
	if strings.Contains(failure, "flaky") {
		t.Errorf("one panic looks like several:\n%s", failure)
	}
}

func TestFailureOfRestartIsReportedWithItsProgram(t *testing.T) {
	setFlag(t, "rapid.shrinktime", "1s")
	b := modelBackend(nil)
	b.Restart = func(t testing.TB, old driver.Opener, _ Crash) driver.Opener {
		t.Errorf("page %d is torn", 7)
		return old
	}
	failure := provoke(t, b, 100_000)
	for _, want := range []string{"panics: page 7 is torn", "\nrestart clean\n", "-rapid.seed="} {
		if !strings.Contains(failure, want) {
			t.Errorf("the failure lacks %q:\n%s", want, failure)
		}
	}
}

func TestUnsupportedConfigurationsAreSkipped(t *testing.T) {
	b := modelBackend(nil)
	b.Open = func(testing.TB) driver.Opener { return onlyPlain{newModelBox(nil)} }
	RunRandom(t, b, 2_000)
}

// onlyPlain supports no configuration with strict groups.
type onlyPlain struct{ *modelOpener }

func (o onlyPlain) ConfigureQueue(ctx context.Context, name string, config driver.Config) error {
	if config.StrictGroups {
		return &driver.Error{Code: driver.ErrUnsupported, Op: "configure", Field: "StrictGroups"}
	}
	return o.modelOpener.ConfigureQueue(ctx, name, config)
}
