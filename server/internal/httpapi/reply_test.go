package httpapi_test

import (
	"context"
	"errors"
	"iter"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/redis/rueidis"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/diskbox"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/driver/drivertest"
	"github.com/mailboxmq/mailbox/internal/keyring"
	"github.com/mailboxmq/mailbox/internal/testing/redistest"
	"github.com/mailboxmq/mailbox/internal/testing/replytest"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/redisbox"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

// clientReplies is a reply store over HTTP.
type clientReplies struct{ *client }

func (c clientReplies) Create(ctx context.Context, id string, ttl time.Duration) error {
	if !utf8.ValidString(id) { // JSON cannot say it
		return driver.CheckSlot(id, ttl)
	}
	_, err := c.call(ctx, "/v1/replies/create", false, map[string]any{"slot": id, "ttl_ms": ms(ttl)}, &struct{}{})
	return err
}

func (c clientReplies) Resolve(ctx context.Context, id string, a driver.Answer) error {
	_, err := c.call(ctx, "/v1/replies/resolve", false, map[string]any{"slot": id, "payload_b64": append([]byte{}, a.Body...), "error": a.Failure, "error_kind": a.FailureKind}, &struct{}{})
	return err
}

func (c clientReplies) Cancel(ctx context.Context, id string) error {
	_, err := c.call(ctx, "/v1/replies/cancel", false, map[string]any{"slot": id}, &struct{}{})
	return err
}

func (c clientReplies) Delete(ctx context.Context, id string) error {
	_, err := c.call(ctx, "/v1/replies/delete", false, map[string]any{"slot": id}, &struct{}{})
	return err
}

func (c clientReplies) Get(ctx context.Context, id string) (driver.Slot, error) {
	return c.slot(ctx, "/v1/replies/get", map[string]any{"slot": id})
}

func (c clientReplies) Wait(ctx context.Context, id string, wait time.Duration) (driver.Slot, error) {
	return c.slot(ctx, "/v1/replies/wait", map[string]any{"slot": id, "wait_ms": ms(max(wait, 0))})
}

func (c clientReplies) Consume(ctx context.Context, id string) (driver.Slot, error) {
	return c.slot(ctx, "/v1/replies/consume", map[string]any{"slot": id})
}

func (c clientReplies) slot(ctx context.Context, path string, request any) (driver.Slot, error) {
	var s clientSlot
	if _, err := c.call(ctx, path, false, request, &s); err != nil {
		return driver.Slot{}, err
	}
	return s.slot(), nil
}

// A clientSlot is a slot in JSON.
type clientSlot struct {
	Slot       string           `json:"slot"`
	State      driver.SlotState `json:"state"`
	Payload    []byte           `json:"payload_b64"`
	Error      string           `json:"error"`
	ErrorKind  string           `json:"error_kind"`
	CreatedAt  time.Time        `json:"created_at"`
	ExpiresAt  time.Time        `json:"expires_at"`
	ResolvedAt time.Time        `json:"resolved_at"`
}

func (s *clientSlot) slot() driver.Slot {
	return driver.Slot{
		ID: s.Slot, State: s.State, Answer: driver.Answer{Body: s.Payload, Failure: s.Error, FailureKind: s.ErrorKind},
		CreatedAt: s.CreatedAt, ExpiresAt: s.ExpiresAt, ResolvedAt: s.ResolvedAt,
	}
}

func (c clientReplies) Slots(ctx context.Context) iter.Seq2[driver.Slot, error] {
	return func(yield func(driver.Slot, error) bool) {
		for s, err := range lines[clientSlot](ctx, c.client, "/v1/replies/list", struct{}{}) {
			if !yield(s.slot(), err) {
				return
			}
		}
	}
}

func (c clientReplies) Expired(ctx context.Context, limit int) ([]string, error) {
	var ids struct{ Slots []string }
	_, err := c.call(ctx, "/v1/replies/expired", false, map[string]any{"limit": limit}, &ids)
	return ids.Slots, err
}

func (c clientReplies) Sweep(ctx context.Context, limit int) (int, error) {
	var swept struct{ Removed int }
	_, err := c.call(ctx, "/v1/replies/sweep", false, map[string]any{"limit": limit}, &swept)
	return swept.Removed, err
}

// openReplies returns the reply store of a daemon in front of a backend, which it closes.
func openReplies(t testing.TB, backend driver.Opener) driver.ReplyStore {
	t.Helper()
	s := newServiceWith(t, backend, broker.Limits{}, keyring.New(keyring.NewKey()))
	token := s.mint(t, "", capability.EveryOperation(), capability.Queues(capability.AnyQueue()))
	c := newClient(s.client, "http://mailbox", token, func() error { return errors.Join(s.close(), backend.(interface{ Close() error }).Close()) })
	t.Cleanup(func() { _ = c.Close() })
	return clientReplies{c}
}

// TestReplyConformance runs the suite of reply stores through HTTP.
func TestReplyConformance(t *testing.T) {
	volume.Repeats(t)
	drivertest.RunReplyStore(t, drivertest.ReplyStore{
		Virtual: true,
		Open:    func(t testing.TB) driver.ReplyStore { return openReplies(t, membox.New(nil)) },
	})
}

func TestReplyConformanceOnDisk(t *testing.T) {
	drivertest.RunReplyStore(t, slotsOnDisk(func(backend driver.Opener) driver.Opener { return backend }))
}

// slotsOnDisk is the reply store of a daemon in front of a directory that is passed through a function.
func slotsOnDisk(pass func(driver.Opener) driver.Opener) drivertest.ReplyStore {
	return drivertest.ReplyStore{
		Virtual: true,
		Open: func(t testing.TB) driver.ReplyStore {
			replytest.InPart(t)
			backend, err := diskbox.Open(t.Context(), t.TempDir(), nil)
			if err != nil {
				t.Fatal(err)
			}
			return openReplies(t, pass(backend))
		},
	}
}

func TestReplyConformanceOnRedis(t *testing.T) {
	server := redistest.Standalone(t)
	drivertest.RunReplyStore(t, drivertest.ReplyStore{Open: func(t testing.TB) driver.ReplyStore {
		replytest.InPart(t)
		redis, err := rueidis.NewClient(server.ClientOption())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(redis.Close)
		backend, err := redisbox.Open(t.Context(), redis, &redisbox.Options{Prefix: redistest.Prefix(t)})
		if err != nil {
			t.Fatal(err)
		}
		return openReplies(t, backend)
	}})
}

func TestSlotSaboteursAreCaughtThroughHTTP(t *testing.T) {
	volume.InFull(t)
	replytest.ExpectCaught(t, func(spoil func(driver.Opener) driver.Opener) drivertest.ReplyStore {
		return drivertest.ReplyStore{Virtual: true, Open: func(t testing.TB) driver.ReplyStore {
			return openReplies(t, spoil(membox.New(nil)))
		}}
	})
}

func TestSlotSaboteursAreCaughtThroughHTTPOnDisk(t *testing.T) {
	volume.InFull(t)
	replytest.ExpectCaughtInPart(t, slotsOnDisk)
}

// TestTokenForOneSlotReachesNoOther narrows the tokens of a client and of a worker, which hand them on: to a
// program that waits for one answer, and to one that gives it.
func TestTokenForOneSlotReachesNoOther(t *testing.T) {
	s := newServiceWith(t, membox.New(nil), broker.Limits{}, keyring.New(keyring.NewKey()))
	t.Cleanup(func() { _ = s.close() })
	store := func(token capability.Token) clientReplies {
		return clientReplies{newClient(s.client, "http://mailbox", token, func() error { return nil })}
	}
	forOne := func(operation capability.Operation) clientReplies {
		token, err := s.mint(t, "", capability.Operations(operation), capability.Queues(capability.AnyQueue())).Narrow(capability.ForSlot("one"))
		if err != nil {
			t.Fatal(err)
		}
		return store(token)
	}
	asking, answering, all := forOne(capability.OpAsk), forOne(capability.OpAnswer), store(s.mint(t, ""))
	for _, id := range []string{"one", "other"} {
		if err := all.Create(t.Context(), id, time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	use := func(id string) map[string]error {
		_, waited := asking.Wait(t.Context(), id, time.Minute)
		_, got := answering.Get(t.Context(), id)
		return map[string]error{"answer": answering.Resolve(t.Context(), id, driver.Answer{Body: []byte("yes")}), "wait": waited, "get": got, "cancel": asking.Cancel(t.Context(), id), "delete": asking.Delete(t.Context(), id)}
	}
	for what, err := range use("other") {
		if !errors.Is(err, driver.ErrForbidden) {
			t.Errorf("%s of another slot: %v", what, err)
		}
	}
	if err := asking.Create(t.Context(), "third", time.Minute); !errors.Is(err, driver.ErrForbidden) {
		t.Errorf("create: %v", err)
	}
	if err := answering.Resolve(t.Context(), "one", driver.Answer{Body: []byte("yes")}); err != nil {
		t.Fatal(err)
	}
	if slot, err := asking.Wait(t.Context(), "one", time.Minute); err != nil || string(slot.Answer.Body) != "yes" {
		t.Errorf("got %+v, %v", slot, err)
	}
	if slot, err := all.Get(t.Context(), "other"); err != nil || slot.State != driver.SlotPending {
		t.Errorf("the other slot: %+v, %v", slot, err)
	}
}

func TestSlotWithoutIDGetsOne(t *testing.T) {
	d := open(t, broker.Limits{}, driver.Config{})
	store := openReplies(t, membox.New(nil)).(clientReplies)
	var made struct {
		Slot    string `json:"slot"`
		ReplyTo string `json:"reply_to"`
	}
	if _, err := store.call(t.Context(), "/v1/replies/create", false, map[string]any{}, &made); err != nil {
		t.Fatal(err)
	}
	slot, err := store.Get(t.Context(), made.Slot)
	if err != nil || made.ReplyTo != "reply:"+made.Slot || len(made.Slot) < 32 || slot.ExpiresAt.Sub(slot.CreatedAt) != 5*time.Minute {
		t.Errorf("created %+v, which is %+v, %v", made, slot, err)
	}
	for _, path := range []string{"resolve", "wait", "get", "consume", "cancel", "delete"} {
		if a := d.post("/v1/replies/"+path, `{}`); a.status != 400 || !strings.Contains(string(a.body), "slot") {
			t.Errorf("%s without a slot: %d %s", path, a.status, a.body)
		}
	}
}

// TestDetailsTellOfPendingSlot (RPL-6): a delivery says that its slot waits, and one whose request was cancelled before does not.
func TestDetailsTellOfPendingSlot(t *testing.T) {
	store := openReplies(t, membox.New(nil)).(clientReplies)
	post := func(path string, body map[string]any, answer any) {
		t.Helper()
		if _, err := store.call(t.Context(), path, false, body, answer); err != nil {
			t.Fatal(err)
		}
	}
	for id, cancelled := range map[string]bool{"waiting": false, "cancelled": true} {
		post("/v1/replies/create", object{"slot": id}, &struct{}{})
		post("/v1/send", object{"topic": id, "idem_key": id, "payload_b64": "", "reply_to": "reply:" + id}, &struct{}{})
		if cancelled {
			post("/v1/replies/cancel", object{"slot": id}, &struct{}{})
		}
		var got struct {
			Messages []struct {
				Details struct {
					SlotPending bool `json:"slot_pending"`
				}
			}
		}
		post("/v1/recv", object{"topic": id, "details": true}, &got)
		if len(got.Messages) != 1 || got.Messages[0].Details.SlotPending == cancelled {
			t.Errorf("%s: got %+v", id, got)
		}
	}
}
