package mailbox_test

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/driver"
)

func TestMessagesYieldsUntilContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := onMemory(t, nil)
		start := time.Now()
		for _, at := range []time.Duration{0, time.Minute, time.Hour} {
			time.AfterFunc(at, func() { mustSend(t, m, at.String()) })
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Hour)
		defer cancel()
		var got []string
		for message, err := range m.Messages(ctx) {
			wantError(t, err, nil)
			wantEqual(t, "time since the send", message.Body, time.Since(start).String())
			got = append(got, message.Body)
			wantError(t, message.Ack(ctx), nil)
		}
		wantSame(t, "bodies", got, []string{"0s", "1m0s", "1h0m0s"})
		wantEqual(t, "time of the end", time.Since(start), 2*time.Hour)
	})
}

func TestIdleMessagesRarelyCallsBackend(t *testing.T) {
	for _, options := range [][]mailbox.ReceiveOption{{mailbox.WithWait(0)}, nil} {
		synctest.Test(t, func(t *testing.T) {
			queue := newFake()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			for range mailbox.New[string]("orders", queue, nil).Messages(ctx, options...) {
				t.Error("yielded something")
			}
			if calls := queue.count(); calls > 61 || calls > 4 && options == nil {
				t.Errorf("%d calls of the backend in an idle minute", calls)
			}
		})
	}
}

func TestBreakReleasesUnyieldedMessages(t *testing.T) {
	m, _ := onMemory(t, nil)
	mustSend(t, m, "a", "b", "c", "d")
	for message, err := range m.Messages(t.Context(), mailbox.WithMax(10)) {
		wantError(t, err, nil)
		if message.Body == "b" {
			break
		}
		wantError(t, message.Ack(t.Context()), nil)
	}
	wantStats(t, m, mailbox.Stats{Ready: 2, InFlight: 1})
	mustSend(t, m, "e")
	wantSame(t, "bodies, in their old places", bodies(mustReceive(t, m, 3)), []string{"c", "d", "e"})
}

func TestPanicInLoopReleasesUnyieldedMessages(t *testing.T) {
	m, _ := onMemory(t, nil)
	mustSend(t, m, "a", "b", "c")
	func() {
		defer func() { wantEqual(t, "recovered", recover(), "boom") }()
		for range m.Messages(t.Context(), mailbox.WithMax(10)) {
			panic("boom")
		}
	}()
	wantStats(t, m, mailbox.Stats{Ready: 2, InFlight: 1})
}

func TestContextEndReleasesUnyieldedMessages(t *testing.T) {
	m, _ := onMemory(t, nil)
	mustSend(t, m, "a", "b", "c")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	yielded := 0
	for message, err := range m.Messages(ctx, mailbox.WithMax(10)) {
		wantError(t, err, nil)
		yielded++
		cancel()
		wantError(t, message.Ack(t.Context()), nil)
	}
	wantEqual(t, "messages yielded", yielded, 1)
	wantStats(t, m, mailbox.Stats{Ready: 2})
}

func TestFailedReleaseIsLogged(t *testing.T) {
	queue := newFake()
	queue.receive = deliver([]driver.Delivery{delivery("1", `"a"`), delivery("2", `"b"`)})
	queue.extend = func(context.Context, []driver.Extension) error { return errUnavailable }
	var log bytes.Buffer
	m := mailbox.New("orders", queue, &mailbox.Options[string]{Logger: textLogger(&log)})
	for range m.Messages(t.Context(), mailbox.WithMax(2)) {
		break
	}
	for _, want := range []string{"level=WARN", "queue=orders", "messages=1", "the cable was cut"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("log has no %q: %s", want, &log)
		}
	}
}

func TestExpiredMessagesAreNotYielded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := onMemory(t, nil)
		mustSend(t, m, "a", "b", "c")
		var got []string
		for message, err := range m.Messages(t.Context(), mailbox.WithMax(3), mailbox.WithVisibility(time.Minute)) {
			wantError(t, err, nil)
			got = append(got, message.Body)
			if len(got) <= 2 {
				time.Sleep(40 * time.Second) // the second one takes the batch past its minute
			}
			_ = message.Ack(t.Context())
			if len(got) == 4 {
				break
			}
		}
		// b was too slow and comes again, and so does c, which was never seen.
		wantSame(t, "bodies", got, []string{"a", "b", "b", "c"})
	})
}

func TestMessagesWithZeroVisibilityAreYielded(t *testing.T) {
	m, _ := onMemory(t, nil)
	mustSend(t, m, "a", "b")
	var got []string
	for message, err := range m.Messages(t.Context(), mailbox.WithMax(2), mailbox.WithVisibility(0)) {
		wantError(t, err, nil)
		if got = append(got, message.Body); len(got) == 2 {
			break
		}
	}
	wantSame(t, "bodies", got, []string{"a", "b"})
}

func TestMessagesRetriesWithGrowingPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue := newFake()
		queue.receive = func(context.Context, driver.ReceiveRequest) ([]driver.Delivery, error) {
			if queue.count() <= 12 {
				return nil, errUnavailable
			}
			return []driver.Delivery{delivery("1", `"tea"`)}, nil
		}
		m := mailbox.New[string]("orders", queue, nil)
		last, failures := time.Now(), 0
		var pauses []time.Duration
		for message, err := range m.Messages(t.Context()) {
			pauses = append(pauses, time.Since(last))
			last = time.Now()
			if err == nil {
				wantEqual(t, "body", message.Body, "tea")
				break
			}
			wantError(t, err, mailbox.ErrUnavailable)
			if message != nil {
				t.Error("an error came with a message")
			}
			failures++
		}
		wantEqual(t, "failures", failures, 12)
		wantEqual(t, "time before the first error", pauses[0], 0)
		if p := pauses[1]; p < 25*time.Millisecond || p > 50*time.Millisecond {
			t.Errorf("first pause is %v", p)
		}
		if p := pauses[12]; p < 2500*time.Millisecond || p > 5*time.Second {
			t.Errorf("last pause is %v", p)
		}
	})
}

func TestSuccessResetsPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue := newFake()
		queue.receive = func(context.Context, driver.ReceiveRequest) ([]driver.Delivery, error) {
			if n := queue.count(); n == 10 {
				return []driver.Delivery{delivery("1", `"tea"`)}, nil
			}
			return nil, errUnavailable
		}
		last, yielded := time.Now(), 0
		for range mailbox.New[string]("orders", queue, nil).Messages(t.Context()) {
			if yielded++; yielded == 12 { // 11 is the first error after the message
				break
			}
			last = time.Now()
		}
		if pause := time.Since(last); pause > 50*time.Millisecond {
			t.Errorf("the pause after the first error in a row is %v", pause)
		}
	})
}

func TestMessagesObeysRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hint := 7 * time.Second
		queue := newFake()
		queue.receive = func(context.Context, driver.ReceiveRequest) ([]driver.Delivery, error) {
			return nil, &driver.Error{Code: driver.ErrUnavailable, RetryAfter: hint}
		}
		last := time.Now()
		var pauses []time.Duration
		for range mailbox.New[string]("orders", queue, nil).Messages(t.Context()) {
			pauses = append(pauses, time.Since(last))
			last = time.Now()
			hint = 24 * time.Hour // for the next error
			if len(pauses) == 3 {
				break
			}
		}
		wantSame(t, "pauses", pauses, []time.Duration{0, 7 * time.Second, 30 * time.Second})
	})
}

func TestBreakOnErrorEndsMessages(t *testing.T) {
	queue := newFake()
	queue.receive = func(context.Context, driver.ReceiveRequest) ([]driver.Delivery, error) {
		return nil, errUnavailable
	}
	for _, err := range mailbox.New[string]("orders", queue, nil).Messages(t.Context()) {
		wantError(t, err, mailbox.ErrUnavailable)
		break
	}
	wantEqual(t, "calls of the backend", queue.count(), 1)
}

func TestCloseEndsMessagesWithErrClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := onMemory(t, nil)
		time.AfterFunc(time.Minute, func() { m.Close() })
		var last error
		for _, err := range m.Messages(t.Context()) {
			last = err
		}
		wantError(t, last, mailbox.ErrClosed)
	})
}

func TestCloseEndsPauseAfterError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue := newFake()
		queue.receive = func(context.Context, driver.ReceiveRequest) ([]driver.Delivery, error) {
			return nil, &driver.Error{Code: driver.ErrUnavailable, RetryAfter: time.Hour}
		}
		m := mailbox.New[string]("orders", queue, nil)
		start := time.Now()
		time.AfterFunc(time.Second, func() { m.Close() })
		var last error
		for _, err := range m.Messages(t.Context()) {
			last = err
		}
		wantError(t, last, mailbox.ErrClosed)
		wantEqual(t, "time of the end", time.Since(start), time.Second)
	})
}
