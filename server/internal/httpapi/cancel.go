package httpapi

import (
	"context"
	"sync"

	"github.com/mailboxmq/mailbox/server/internal/broker"
)

// waitingCalls are the receives that can be cancelled by name. A client that stops
// waiting could close its connection, but messages that were leased for it at the same
// moment would then be lost to it, and in flight until their leases end.
type waitingCalls struct {
	mu    sync.Mutex
	calls map[waitingName]map[*call]context.CancelFunc
}

// waitingName is a correlation id, with the token that used it.
type waitingName struct {
	token broker.Fingerprint
	corr  string
}

// enter returns a context that ends with the request or when it is cancelled by
// name.
func (w *waitingCalls) enter(c *call) (ctx context.Context, leave func()) {
	ctx, cancel := context.WithCancel(c.ctx())
	name := waitingName{c.caller.Fingerprint(), c.corr}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.calls == nil {
		w.calls = make(map[waitingName]map[*call]context.CancelFunc)
	}
	if w.calls[name] == nil {
		w.calls[name] = make(map[*call]context.CancelFunc)
	}
	w.calls[name][c] = cancel
	return ctx, func() {
		cancel()
		w.mu.Lock()
		defer w.mu.Unlock()
		if delete(w.calls[name], c); len(w.calls[name]) == 0 {
			delete(w.calls, name)
		}
	}
}

func (w *waitingCalls) cancel(name waitingName) (found int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, cancel := range w.calls[name] {
		cancel()
		found++
	}
	return found
}

type cancelRequest struct {
	CorrID string `json:"corr_id"`
}

// cancelReceive is POST /v1/recv/cancel: it ends the receives that the same token
// started with this X-Corr-Id. They answer with the messages they have, or with none.
func (h *Handler) cancelReceive(c *call) error {
	var r cancelRequest
	if err := c.decode(&r); err != nil {
		return err
	}
	if r.CorrID == "" {
		return required("corr_id")
	}
	return c.ok(struct {
		Cancelled int `json:"cancelled"`
	}{h.waiting.cancel(waitingName{c.caller.Fingerprint(), r.CorrID})})
}
