package httpapi_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/server/internal/broker"
	"github.com/mailboxmq/mailbox/server/internal/httpapi"
)

// leavingBackend calls leave when a receive has got messages.
type leavingBackend struct {
	*membox.Backend
	leave func()
}

func (b *leavingBackend) OpenQueue(ctx context.Context, name string) (driver.Queue, error) {
	q, err := b.Backend.OpenQueue(ctx, name)
	return &leavingQueue{q, b}, err
}

type leavingQueue struct {
	driver.Queue
	backend *leavingBackend
}

func (q *leavingQueue) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	got, err := q.Queue.Receive(ctx, req)
	if len(got) > 0 {
		q.backend.leave()
	}
	return got, err
}

// TestMessagesOfLostClientAreReleased: the client goes in the moment in which its message is
// leased (FLOW-4).
func TestMessagesOfLostClientAreReleased(t *testing.T) {
	ctx, leave := context.WithCancel(t.Context())
	backend := &leavingBackend{membox.New(nil), leave}
	s := newService(t, backend, broker.Limits{})
	t.Cleanup(func() { _ = s.close(); _ = backend.Close() })
	d := &env{s, t, s.mint(t, "")}
	d.expect(d.post("/v1/send", `{"topic":"q","idem_key":"k","payload_b64":"eA=="}`), http.StatusOK, "")
	const receive = `{"topic":"q","visibility_ms":3600000}`
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/v1/recv", strings.NewReader(receive))
	r.Header.Set("Authorization", "Bearer "+d.token.Reveal())
	s.server.Handler.ServeHTTP(httptest.NewRecorder(), r)
	if ctx.Err() == nil {
		t.Fatal("the client has not got a message")
	}
	if again := d.post("/v1/recv", receive); !strings.Contains(again.body, `"attempt":1`) {
		t.Errorf("after its client has gone: %s", again.body)
	}
}

// longBackend has messages with reply addresses that are too long for an envelope: those whose
// body is "long".
type longBackend struct{ *membox.Backend }

func (b longBackend) OpenQueue(ctx context.Context, name string) (driver.Queue, error) {
	q, err := b.Backend.OpenQueue(ctx, name)
	return longQueue{q}, err
}

type longQueue struct{ driver.Queue }

func (q longQueue) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	got, err := q.Queue.Receive(ctx, req)
	for i := range got {
		if string(got[i].Body) == "long" {
			got[i].ReplyTo = strings.Repeat("x", driver.MaxReplyToBytes+1)
		}
	}
	return got, err
}

// goneWriter is the answer to a client that goes after some writes.
type goneWriter struct {
	*httptest.ResponseRecorder
	writes int
}

func (w *goneWriter) Write(b []byte) (int, error) {
	if w.writes--; w.writes < 0 {
		return 0, net.ErrClosed
	}
	return w.ResponseRecorder.Write(b)
}

// TestUnencodableMessageIsNotReleased: a message that cannot be answered is logged with its size
// and counts, and those beside it are released if the client has gone (FLOW-4).
func TestUnencodableMessageIsNotReleased(t *testing.T) {
	for _, test := range []struct {
		name, path, receive string
		writes              int
		status              int
		answered            []string
		ready               int
	}{
		{"an answer", "/v1/recv", `{"topic":"q"}`, 1, http.StatusOK, []string{"YQ==", "Yg=="}, 0},
		{"an answer that no client reads", "/v1/recv", `{"topic":"q"}`, 0, http.StatusOK, nil, 2},
		{"an answer of nothing else", "/v1/recv", `{"topic":"q","max_messages":1}`, 1, http.StatusBadRequest, nil, 2},
		{"a stream", "/v1/recv/stream", `{"topic":"q","max_messages":3}`, 9, http.StatusOK, []string{"YQ==", "Yg=="}, 0},
		{"a stream that no client reads", "/v1/recv/stream", `{"topic":"q","max_messages":3}`, 0, http.StatusOK, nil, 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			backend := longBackend{membox.New(nil)}
			s := newService(t, backend, broker.Limits{})
			defer func() { _ = s.close(); _ = backend.Close() }()
			direct, err := backend.OpenQueue(t.Context(), "q")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := direct.Send(t.Context(), []driver.Outgoing{{Body: []byte("long")}, {Body: []byte("a")}, {Body: []byte("b")}}); err != nil {
				t.Fatal(err)
			}
			var log bytes.Buffer
			h := httpapi.New(httpapi.Options{Broker: s.broker, Logger: slog.New(slog.NewJSONHandler(&log, nil))})
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, test.path, strings.NewReader(test.receive))
			r.Header.Set("Authorization", "Bearer "+s.mint(t, "").Reveal())
			w := &goneWriter{httptest.NewRecorder(), test.writes}
			h.ServeHTTP(w, r)
			if w.Code != test.status {
				t.Errorf("status %d, want %d: %s", w.Code, test.status, w.Body)
			}
			for _, body := range []string{"YQ==", "Yg=="} {
				if got, want := strings.Contains(w.Body.String(), body), slices.Contains(test.answered, body); got != want {
					t.Errorf("%s in the answer: %v, want %v", body, got, want)
				}
			}
			if want := fmt.Sprintf(`"msg":"message.unencodable","corr_id":%q`, w.Header().Get("X-Corr-Id")); !strings.Contains(log.String(), want) ||
				!strings.Contains(log.String(), fmt.Sprintf(`"bytes":%d,`, driver.MaxReplyToBytes+1+len("long"))) {
				t.Errorf("the log is %s", log.String())
			}
			stats, err := direct.Stats(t.Context())
			if want := (driver.Stats{Ready: test.ready, InFlight: 3 - test.ready}); err != nil || stats != want {
				t.Errorf("%+v, %v, want %+v", stats, err, want)
			}
			again, err := direct.Receive(t.Context(), driver.ReceiveRequest{Max: 3, Visibility: time.Hour})
			for _, d := range again {
				if err != nil || d.Deliveries != 1 || string(d.Body) == "long" {
					t.Errorf("received %s for the %d. time, %v", d.Body, d.Deliveries, err)
				}
			}
		})
	}
}
