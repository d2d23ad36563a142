package drivertest

import (
	"bytes"
	"context"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/history"
	"github.com/mailboxmq/mailbox/internal/testing/queuemodel"
)

func newModelQueue(config driver.Config) *queuemodel.Queue {
	start := time.Now()
	return &queuemodel.Queue{
		Model: queuemodel.New("recorded", queuemodel.AllTraits, config, start),
		Clock: func() time.Duration { return time.Since(start) },
		Sleep: pauseBriefly,
	}
}

func TestRecorderWritesDownEveryElement(t *testing.T) {
	recorder := history.NewRecorder("p")
	q := recorder.Queue(newModelQueue(driver.Config{MaxMessages: 2}))
	ctx := t.Context()
	_, _ = q.Send(ctx, []driver.Outgoing{{Body: []byte("a")}, {Body: []byte("b"), Delay: time.Minute, Group: "g"}, {Body: []byte("c")}})
	deliveries, _ := q.Receive(ctx, driver.ReceiveRequest{Max: 5, Visibility: time.Minute})
	_, _ = q.Extend(ctx, []driver.Extension{{Receipt: deliveries[0].Receipt, Visibility: time.Hour}})
	_ = q.Ack(ctx, []driver.Receipt{deliveries[0].Receipt, {Handle: "unknown", Nonce: 9}})
	_ = q.Ack(ctx, nil) // an empty batch has no event
	_, _ = q.Purge(ctx)

	events := recorder.History().Events
	type line struct {
		op       history.Op
		position int
		outcome  history.Outcome
		code     driver.Code
		id       string
		duration time.Duration
		count    int
	}
	want := []line{
		{history.OpSend, 0, history.OutcomeOK, "", "m1", 0, 0},
		{history.OpSend, 1, history.OutcomeOK, "", "m2", time.Minute, 0},
		{history.OpSend, 2, history.OutcomeFail, driver.ErrFull, "", 0, 0},
		{history.OpReceive, 0, history.OutcomeOK, "", "m1", time.Minute, 0},
		{history.OpExtend, 0, history.OutcomeOK, "", "", time.Hour, 0},
		{history.OpAck, 0, history.OutcomeOK, "", "", 0, 0},
		{history.OpAck, 1, history.OutcomeFail, driver.ErrReceiptExpired, "", 0, 0},
		{history.OpPurge, 0, history.OutcomeOK, "", "", 0, 1},
	}
	var got []line
	for _, e := range events {
		got = append(got, line{e.Op, e.Position, e.Outcome, e.Code, e.ID, e.Duration, e.Count})
		if e.Process != "p" || e.Invoke.Tick == 0 || e.Return.Tick <= e.Invoke.Tick || e.Return.Time < e.Invoke.Time {
			t.Errorf("bad process or stamps: %v", &e)
		}
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%+v\nwant\n%+v", got, want)
	}
	if events[0].Digest != events[3].Digest || events[0].Digest == events[1].Digest {
		t.Error("digests do not tell bodies apart")
	}
}

func TestRecorderPassesEveryMethodOn(t *testing.T) {
	RunWrapper(t, func(behind driver.Opener) driver.Opener { return recordingOpener{behind} })
}

type recordingOpener struct{ driver.Opener }

func (o recordingOpener) OpenQueue(ctx context.Context, name string) (driver.Queue, error) {
	q, err := o.Opener.OpenQueue(ctx, name)
	return history.NewRecorder("").Queue(q), err
}

func TestRecorderRecordsDeadLetters(t *testing.T) {
	recorder := history.NewRecorder("")
	q := recorder.Queue(newModelQueue(driver.Config{MaxMessages: 1}))
	ctx := t.Context()
	for range 2 {
		_, _ = q.Send(ctx, []driver.Outgoing{{Body: []byte("a")}})
		deliveries, _ := q.Receive(ctx, driver.ReceiveRequest{Max: 1, Visibility: time.Hour})
		_ = q.DeadLetter(ctx, []driver.DeadLetterRequest{{Receipt: deliveries[0].Receipt, Reason: driver.ReasonFatal}})
	}
	moved, err := q.Redrive(ctx, nil, 0)
	if moved != 1 || err == nil {
		t.Fatalf("redrive moved %d, %v; want 1 and ErrFull", moved, err)
	}
	_, _ = q.Discard(ctx, []string{"m2", "unknown"})
	_, _ = q.PurgeDead(ctx)
	events := recorder.History().Events[6:]
	// A redrive that stopped half way has moved something, so it is ok.
	for i, want := range []history.Event{
		{Op: history.OpRedrive, Outcome: history.OutcomeOK, Count: 1},
		{Op: history.OpDiscard, Outcome: history.OutcomeOK, ID: "m2", Count: 1},
		{Op: history.OpDiscard, Outcome: history.OutcomeOK, ID: "unknown"},
		{Op: history.OpPurgeDead, Outcome: history.OutcomeOK},
	} {
		got := events[i]
		if got.Op != want.Op || got.Outcome != want.Outcome || got.ID != want.ID || got.Count != want.Count {
			t.Errorf("event %d is %+v, want %+v", i, got, want)
		}
	}
}

// failing is a queue whose calls all fail.
type failing struct {
	driver.Queue
	err error
}

func (f failing) Send(context.Context, []driver.Outgoing) ([]driver.Sent, error) { return nil, f.err }

func (f failing) Receive(context.Context, driver.ReceiveRequest) ([]driver.Delivery, error) {
	return nil, f.err
}

func TestRecorderJudgesOutcomes(t *testing.T) {
	for _, test := range []struct {
		err           error
		send, receive history.Outcome
	}{
		{&driver.Error{Code: driver.ErrFull}, history.OutcomeFail, history.OutcomeFail},
		{&driver.Error{Code: driver.ErrClosed}, history.OutcomeFail, history.OutcomeFail},
		{&driver.Error{Code: driver.ErrUnavailable}, history.OutcomeUnknown, history.OutcomeUnknown},
		{context.Canceled, history.OutcomeUnknown, history.OutcomeFail}, // a receive returns what it leased
		{context.DeadlineExceeded, history.OutcomeUnknown, history.OutcomeFail},
	} {
		recorder := history.NewRecorder("")
		q := recorder.Queue(failing{newModelQueue(driver.Config{}), test.err})
		_, _ = q.Send(t.Context(), []driver.Outgoing{{}})
		_, _ = q.Receive(t.Context(), driver.ReceiveRequest{Max: 1})
		events := recorder.History().Events
		if events[0].Outcome != test.send || events[1].Outcome != test.receive {
			t.Errorf("%v: send is %s and receive %s, want %s and %s", test.err, events[0].Outcome, events[1].Outcome, test.send, test.receive)
		}
	}
}

// stuck is a queue whose sends block until released.
type stuck struct {
	driver.Queue
	entered, letGo chan struct{}
}

func (s stuck) Send(ctx context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
	close(s.entered)
	<-s.letGo
	return s.Queue.Send(ctx, msgs)
}

func TestCallThatHasNotReturnedIsUnknown(t *testing.T) {
	recorder := history.NewRecorder("")
	slow := stuck{newModelQueue(driver.Config{}), make(chan struct{}), make(chan struct{})}
	q := recorder.Queue(slow)
	var wg sync.WaitGroup
	wg.Go(func() { _, _ = q.Send(t.Context(), []driver.Outgoing{{Body: []byte("a")}}) })
	<-slow.entered
	during := recorder.History().Events
	close(slow.letGo)
	wg.Wait()
	after := recorder.History().Events
	if len(during) != 1 || during[0].Outcome != history.OutcomeUnknown || during[0].Digest != history.Digest([]byte("a")) {
		t.Errorf("during the call: %+v", during)
	}
	if len(after) != 1 || after[0].Outcome != history.OutcomeOK {
		t.Errorf("after the call: %+v", after)
	}
}

func TestHistorySurvivesAFile(t *testing.T) {
	var files [2]bytes.Buffer
	var want []history.Event
	for i, name := range []string{"one", "two"} {
		recorder := history.NewRecorder(name)
		q := recorder.Queue(newModelQueue(driver.Config{}))
		_, _ = q.Send(t.Context(), []driver.Outgoing{{Body: []byte(name), DedupKey: "k", Group: "g", Delay: time.Minute}})
		_, _ = q.Send(t.Context(), []driver.Outgoing{{Body: []byte(name)}})
		_, _ = q.Receive(t.Context(), driver.ReceiveRequest{Max: 1, Visibility: time.Minute})
		if err := recorder.History().Write(&files[i]); err != nil {
			t.Fatal(err)
		}
		want = append(want, recorder.History().Events...)
	}
	got, err := history.ReadHistory(&files[0], &files[1])
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got.Events, want) {
		t.Errorf("got\n%+v\nwant\n%+v", got.Events, want)
	}
	if _, err := history.ReadHistory(bytes.NewBufferString("{\"op\":\"send\"}\nrubbish\n")); err == nil {
		t.Error("rubbish was read")
	}
}
