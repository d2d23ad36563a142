package replytest_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/replytest"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/reply"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A recorder is a test that records failures instead of failing.
type recorder struct {
	testing.TB
	mu     sync.Mutex // guards faults
	faults []string
}

func (v *recorder) Helper() {}

func (v *recorder) Errorf(format string, values ...any) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.faults = append(v.faults, fmt.Sprintf(format, values...))
}

func run(t testing.TB, wrap func(driver.ReplyStore) driver.ReplyStore) replytest.Result {
	backend, store := membox.New(nil), reply.NewMemory(nil)
	defer backend.Close()
	return replytest.Load{
		Requests: backend, Replies: wrap(store),
		Slots:   func(context.Context) (int, error) { return store.(interface{ Len() int }).Len(), nil },
		Callers: 300, Workers: 4, Work: time.Second, Visibility: 30 * time.Second, Patience: 10 * time.Minute,
	}.Run(t)
}

func TestLoadPassesOnCorrectStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		result := run(t, func(store driver.ReplyStore) driver.ReplyStore { return store })
		t.Log(result)
	})
}

func TestLoadFindsBrokenStores(t *testing.T) {
	for want, wrap := range map[string]func(driver.ReplyStore) driver.ReplyStore{
		"got \"answer to question":   func(store driver.ReplyStore) driver.ReplyStore { return &mixing{ReplyStore: store} },
		"slots are left":             func(store driver.ReplyStore) driver.ReplyStore { return hoarding{store} },
		"too few answers":            func(store driver.ReplyStore) driver.ReplyStore { return dropping{store} },
		"requests are left":          func(store driver.ReplyStore) driver.ReplyStore { return refusing{store} },
		"got mailbox: create slot":   func(store driver.ReplyStore) driver.ReplyStore { return &confusing{ReplyStore: store} },
		"got the failure \"an odd q": func(store driver.ReplyStore) driver.ReplyStore { return &mixing{ReplyStore: store, failures: true} },
	} {
		t.Run(want, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				found := &recorder{TB: t}
				run(found, wrap)
				if all := strings.Join(found.faults, "\n"); !strings.Contains(all, want) {
					t.Errorf("the fault was not found: %s", all)
				}
			})
		})
	}
}

// mixing gives answers, or failures, to the wrong caller.
type mixing struct {
	driver.ReplyStore
	failures bool

	mu   sync.Mutex // guards last
	last driver.Answer
}

func (s *mixing) Resolve(ctx context.Context, id string, answer driver.Answer) error {
	return s.ReplyStore.Resolve(ctx, id, s.mix(answer))
}

func (s *mixing) mix(answer driver.Answer) driver.Answer {
	if s.failures != (answer.Failure != "") {
		return answer
	}
	answer.Body = bytes.Clone(answer.Body)
	s.mu.Lock()
	defer s.mu.Unlock()
	wrong := s.last
	s.last = answer
	if wrong.Body == nil && wrong.Failure == "" {
		return answer
	}
	return wrong
}

// hoarding never removes expired slots.
type hoarding struct{ driver.ReplyStore }

func (hoarding) Sweep(context.Context, int) (int, error) { return 0, nil }

// dropping stores no answers.
type dropping struct{ driver.ReplyStore }

func (dropping) Resolve(context.Context, string, driver.Answer) error { return nil }

// refusing takes no answers and returns no slots, so that requests never end.
type refusing struct{ driver.ReplyStore }

func (refusing) Resolve(_ context.Context, id string, _ driver.Answer) error {
	return driver.SlotError("resolve", id, driver.ErrUnavailable)
}

func (refusing) Get(_ context.Context, id string) (driver.Slot, error) {
	return driver.Slot{}, driver.SlotError("get", id, driver.ErrUnavailable)
}

// confusing says now and then that it is full.
type confusing struct {
	driver.ReplyStore
	n atomic.Int64
}

func (s *confusing) Create(ctx context.Context, id string, ttl time.Duration) error {
	if s.n.Add(1)%20 == 0 {
		return driver.SlotError("create slot", id, driver.ErrFull)
	}
	return s.ReplyStore.Create(ctx, id, ttl)
}
