package httpapi_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/server/internal/broker"
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
