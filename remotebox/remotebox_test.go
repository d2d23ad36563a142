package remotebox

import (
	"context"
	"errors"
	"net"
	"net/url"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/oap"
	"github.com/mailboxmq/mailbox/internal/opening"
)

// The conformance suite runs through this package, a daemon and its backends in
// the tests of the daemon's surface. The tests here are about the client alone.

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// script is a daemon that does what a test tells it.
type script struct {
	mu    sync.Mutex
	dials int
	// refuse is answered to START, if it is not nil.
	refuse *driver.Error
	// unreachable is how often dialing fails first.
	unreachable int
	// maxFrame is announced, if it is not 0.
	maxFrame int
	// answer handles a request, and reports whether to go on.
	answer func(conn net.Conn, f *oap.Frame) bool
}

func (s *script) dial(context.Context, string) (net.Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dials++; s.dials <= s.unreachable {
		return nil, errors.New("unreachable")
	}
	client, server := net.Pipe()
	go s.serve(server)
	return client, nil
}

func (s *script) serve(nc net.Conn) {
	defer nc.Close()
	var unread []byte
	buffer := make([]byte, 4096)
	for {
		f, rest, need, err := oap.Next(unread)
		if err != nil {
			return
		}
		if need > 0 {
			n, err := nc.Read(buffer)
			if err != nil {
				return
			}
			unread = append(unread, buffer[:n]...)
			continue
		}
		unread = rest
		switch {
		case f.Code == oap.OpStart && s.refuse != nil:
			respond(nc, oap.StatusOf(s.refuse.Code), &f, oap.AppendError(nil, s.refuse))
			return
		case f.Code == oap.OpStart:
			respond(nc, oap.StatusOK, &f, oap.AppendStarted(nil, &oap.StartAnswer{Version: 1, Window: oap.MaxWindow, MaxFrame: s.maxFrame}))
		case f.Code == oap.OpJoin, f.Code == oap.OpKnow, f.Code == oap.OpName:
			respond(nc, oap.StatusUnsupported, &f, oap.AppendError(nil, &driver.Error{Code: driver.ErrUnsupported}))
		case f.Code == oap.OpOpenIdentified:
			respond(nc, oap.StatusOK, &f, oap.AppendIdentified(nil, &oap.Opened{Handle: 1, Traits: driver.Traits{
				MaxBodyBytes: 1 << 20, MaxBatch: 256, MaxAttributes: driver.MaxAttributes, MaxAttributeBytes: driver.MaxAttributeBytes,
			}}))
		case !s.answer(nc, &f):
			return
		}
	}
}

func respond(nc net.Conn, status uint16, f *oap.Frame, payload []byte) {
	h := oap.Header{Flags: oap.Response, Code: status, Protocol: oap.ProtocolMailbox, Correlation: f.Correlation}
	_, _ = nc.Write(oap.AppendFrame(nil, &h, nil, payload))
}

// withScript runs a test with a client of a scripted daemon, in virtual time.
func withScript(t *testing.T, s *script, run func(t *testing.T, b *Backend)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := New([]string{"script"}, "", &Options{Dial: s.dial})
		defer b.Close()
		run(t, b)
	})
}

func TestConnectsAgainWithPauses(t *testing.T) {
	s := &script{unreachable: 5, answer: func(nc net.Conn, f *oap.Frame) bool { respond(nc, oap.StatusOK, f, nil); return true }}
	withScript(t, s, func(t *testing.T, b *Backend) {
		began := time.Now()
		if err := b.Ping(t.Context()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took < 500*time.Millisecond || took > 2*time.Second {
			t.Errorf("five failures took %v: the pauses grow from 50 ms", took)
		}
	})
}

func TestPatienceEnds(t *testing.T) {
	s := &script{unreachable: 1 << 30}
	withScript(t, s, func(t *testing.T, b *Backend) {
		began := time.Now()
		_, err := b.OpenQueue(t.Context(), "orders")
		if !errors.Is(err, driver.ErrUnavailable) || driver.RetryAfter(err) == 0 || time.Since(began) != defaultPatience {
			t.Errorf("got %v after %v", err, time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began = time.Now()
		if err := b.Ping(ctx); err != context.DeadlineExceeded || time.Since(began) != time.Second { //nolint:errorlint // the bare error is the promise
			t.Errorf("got %v after %v", err, time.Since(began))
		}
	})
}

func TestARefusedTokenIsNotTriedAgain(t *testing.T) {
	s := &script{refuse: &driver.Error{Code: driver.ErrUnauthenticated, Detail: "expired"}}
	withScript(t, s, func(t *testing.T, b *Backend) {
		for range 2 {
			if err := b.Ping(t.Context()); !errors.Is(err, driver.ErrUnauthenticated) {
				t.Errorf("got %v", err)
			}
		}
		if s.dials != 2 {
			t.Errorf("%d connections for two pings", s.dials)
		}
	})
}

// TestASendIsNotRepeatedForADaemonThatDoesNotKnowTheSession loses the connection
// after the request has arrived; the daemon that answers next never heard of it.
func TestASendIsNotRepeatedForADaemonThatDoesNotKnowTheSession(t *testing.T) {
	sends := 0
	s := &script{answer: func(nc net.Conn, f *oap.Frame) bool {
		if f.Code == oap.OpSend {
			sends++
			return false
		}
		respond(nc, oap.StatusOK, f, nil)
		return true
	}}
	withScript(t, s, func(t *testing.T, b *Backend) {
		q, err := b.OpenQueue(t.Context(), "orders")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := q.Send(t.Context(), []driver.Outgoing{{Body: []byte("a")}}); !errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("got %v", err)
		}
		if sends != 1 {
			t.Errorf("it was sent %d times", sends)
		}
	})
}

// TestContextEndsCallToSilentDaemon: the end of a context ends calls, also a receive
// that the daemon does not cancel.
func TestContextEndsCallToSilentDaemon(t *testing.T) {
	s := &script{answer: func(net.Conn, *oap.Frame) bool { return true }}
	withScript(t, s, func(t *testing.T, b *Backend) {
		q, err := b.OpenQueue(t.Context(), "orders")
		if err != nil {
			t.Fatal(err)
		}
		for name, do := range map[string]func(ctx context.Context) error{
			"send":    func(ctx context.Context) error { _, err := q.Send(ctx, make([]driver.Outgoing, 1)); return err },
			"ack":     func(ctx context.Context) error { return q.Ack(ctx, make([]driver.Receipt, 1)) },
			"receive": func(ctx context.Context) error { _, err := q.Receive(ctx, driver.ReceiveRequest{Max: 1}); return err },
		} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			began := time.Now()
			if err := do(ctx); err != context.DeadlineExceeded { //nolint:errorlint // the bare error is the promise
				t.Errorf("%s: got %v", name, err)
			}
			if took := time.Since(began); took < time.Second || took > time.Second+graceTime {
				t.Errorf("%s: took %v", name, took)
			}
			cancel()
		}
	})
}

// TestMessagesThatComeTooLateGoBack answers a receive when its caller has gone.
func TestMessagesThatComeTooLateGoBack(t *testing.T) {
	var late oap.Frame
	extended := make(chan []driver.Extension, 1)
	s := &script{}
	s.answer = func(nc net.Conn, f *oap.Frame) bool {
		switch f.Code {
		case oap.OpReceive:
			late = *f
		case oap.OpPing:
			d := driver.Delivery{Message: driver.Message{ID: "id", EnqueuedAt: time.Now()}, Receipt: driver.Receipt{Handle: "late"}}
			respond(nc, oap.StatusOK, &late, oap.AppendDelivery(nil, &d))
			respond(nc, oap.StatusOK, f, nil)
		case oap.OpExtend:
			_, extensions, _ := oap.ParseExtend(f.Payload, nil)
			extended <- extensions
		}
		return true
	}
	withScript(t, s, func(t *testing.T, b *Backend) {
		q, err := b.OpenQueue(t.Context(), "orders")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := q.Receive(ctx, driver.ReceiveRequest{Max: 1, Wait: time.Minute}); err == nil {
			t.Fatal("there was no answer")
		}
		if err := b.Ping(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := <-extended; len(got) != 1 || got[0].Receipt.Handle != "late" || got[0].Visibility != 0 {
			t.Errorf("got %+v", got)
		}
	})
}

// A daemon of an earlier version does not know EXTEND GRANTED.
func TestOldDaemonGrantsWhatIsAskedFor(t *testing.T) {
	var codes []uint16
	s := &script{}
	s.answer = func(nc net.Conn, f *oap.Frame) bool {
		codes = append(codes, f.Code)
		switch f.Code {
		case oap.OpExtend:
			respond(nc, oap.StatusOK, f, oap.AppendFailures(nil, []error{nil, driver.ErrReceiptExpired}))
		default:
			unknown := &driver.Error{Code: driver.ErrUnsupported, Detail: "unknown operation"}
			respond(nc, oap.StatusOf(unknown.Code), f, oap.AppendError(nil, unknown))
		}
		return true
	}
	withScript(t, s, func(t *testing.T, b *Backend) {
		q, err := b.OpenQueue(t.Context(), "orders")
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			granted, err := q.Extend(t.Context(), []driver.Extension{{Visibility: time.Hour}, {Visibility: time.Hour}})
			if driver.At(err, 0) != nil || !errors.Is(driver.At(err, 1), driver.ErrReceiptExpired) || !slices.Equal(granted, []time.Duration{time.Hour, 0}) {
				t.Errorf("granted %v, error %v", granted, err)
			}
		}
		if want := []uint16{oap.OpExtendGranted, oap.OpExtend, oap.OpExtend}; !slices.Equal(codes, want) {
			t.Errorf("requests were %x, want %x", codes, want)
		}
	})
}

// TestDaemonWithoutProgressExtends: a daemon of an earlier version gets the extensions without the reports.
func TestDaemonWithoutProgressExtends(t *testing.T) {
	var codes []uint16
	s := &script{}
	s.answer = func(nc net.Conn, f *oap.Frame) bool {
		codes = append(codes, f.Code)
		if f.Code == oap.OpExtendGranted {
			respond(nc, oap.StatusOK, f, oap.AppendGranted(nil, []time.Duration{time.Hour}, nil))
			return true
		}
		unknown := &driver.Error{Code: driver.ErrUnsupported, Detail: "unknown operation"}
		respond(nc, oap.StatusOf(unknown.Code), f, oap.AppendError(nil, unknown))
		return true
	}
	withScript(t, s, func(t *testing.T, b *Backend) {
		q, err := b.OpenQueue(t.Context(), "orders")
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			granted, err := q.Extend(t.Context(), []driver.Extension{{Visibility: time.Hour, Progress: driver.NewProgress(0.4, "page 4 of 10")}})
			if err != nil || !slices.Equal(granted, []time.Duration{time.Hour}) {
				t.Errorf("granted %v, error %v", granted, err)
			}
		}
		if want := []uint16{oap.OpExtendProgress, oap.OpExtendGranted, oap.OpExtendGranted}; !slices.Equal(codes, want) {
			t.Errorf("requests were %x, want %x", codes, want)
		}
	})
}

func TestTheWindowOfNumbersIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSequence()
		for want := uint64(1); want <= oap.MaxWindow; want++ {
			if ticket, err := s.take(t.Context()); err != nil || ticket.Sequence != want {
				t.Fatal(ticket, err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := s.take(ctx); err != context.DeadlineExceeded { //nolint:errorlint // the bare error is the promise
			t.Errorf("one more than fits: %v", err)
		}
		s.end(2) // not the oldest: no room yet
		next := make(chan oap.Ticket)
		go func() {
			ticket, _ := s.take(t.Context())
			next <- ticket
		}()
		synctest.Wait()
		select {
		case ticket := <-next:
			t.Errorf("got %+v while 1 has no answer", ticket)
		default:
		}
		s.end(1)
		if ticket := <-next; ticket != (oap.Ticket{Sequence: oap.MaxWindow + 1, Behind: oap.MaxWindow - 2}) {
			t.Errorf("got %+v: 3 is the oldest", ticket)
		}
	})
}

func TestAddressesAreHonouredOrRefused(t *testing.T) {
	var daemons opening.Pool
	open, closeAll := urlOpener(map[string]string{"127.0.0.1:1": ""}, &Options{Patience: -1}, &daemons)
	defer closeAll()
	for address, want := range map[string]driver.Code{
		"mailbox://127.0.0.1:1/orders":      driver.ErrUnavailable, // no server listens there
		"mailbox://127.0.0.1:1/a/b":         driver.ErrUnavailable,
		"mailbox://127.0.0.1:2/orders":      driver.ErrForbidden,
		"mailbox://127.0.0.1/orders":        driver.ErrInvalid,
		"mailbox:///orders":                 driver.ErrInvalid,
		"mailbox://127.0.0.1:1/":            driver.ErrInvalid,
		"mailbox://u:p@127.0.0.1:1/orders":  driver.ErrInvalid,
		"mailbox://127.0.0.1:1/orders?a=b":  driver.ErrInvalid,
		"mailbox://127.0.0.1:1/orders#part": driver.ErrInvalid,
		"mailbox:orders":                    driver.ErrInvalid,
		"redis://127.0.0.1:1/orders":        driver.ErrInvalid,
	} {
		parsed, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := open(t.Context(), parsed); !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", address, err, want)
		}
	}
	if n := daemons.Len(); n != 0 {
		t.Errorf("%d daemons are still connected to", n)
	}
}

// TestCloseDuringCallLeavesItsOutcomeUnknown: the daemon has the request, and may do it.
func TestCloseDuringCallLeavesItsOutcomeUnknown(t *testing.T) {
	s := &script{answer: func(net.Conn, *oap.Frame) bool { return true }} // it never answers
	withScript(t, s, func(t *testing.T, b *Backend) {
		ended := make(chan error, 1)
		go func() { ended <- b.ConfigureQueue(t.Context(), "orders", driver.Config{}) }()
		synctest.Wait()
		_ = b.Close()
		if err := <-ended; !errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("got %v, want ErrUnavailable", err)
		}
	})
}
