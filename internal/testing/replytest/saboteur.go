package replytest

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"slices"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/driver/drivertest"
	"github.com/mailboxmq/mailbox/internal/backoff"
	"github.com/mailboxmq/mailbox/internal/testing/sabotage"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
)

// A saboteur breaks one rule in the reply store behind a daemon.
type saboteur struct {
	name   string
	breaks string // the rule, as in docs/semantics.md
	spoil  func(*spoiled)
	timed  bool // no case of InPart notices it
}

// saboteurs are those that clients notice: remotebox goes on waiting where a store gives up early. The saboteurs of stores alone are in
// package drivertest.
var saboteurs = []saboteur{
	{"creates-over-what-is-there", "RPL-5", func(s *spoiled) {
		s.create = func(ctx context.Context, id string, ttl time.Duration) error {
			return cmp.Or(s.ReplyStore.Delete(ctx, id), s.ReplyStore.Create(ctx, id, ttl))
		}
	}, false},
	{"expires-late", "RPL-5", func(s *spoiled) {
		s.create = func(ctx context.Context, id string, ttl time.Duration) error {
			return s.ReplyStore.Create(ctx, id, min(2*ttl, driver.MaxSlotTTL))
		}
	}, true},
	{"swallows-the-second-answer", "RPL-2", func(s *spoiled) { s.resolve = s.resolveWithout(driver.ErrReplyAlreadySent) }, false},
	{"answers-the-cancelled", "RPL-2", func(s *spoiled) { s.resolve = s.resolveWithout(driver.ErrReplyCancelled) }, false},
	{"makes-an-answer-of-a-failure", "RPL-6", func(s *spoiled) {
		s.resolve = func(ctx context.Context, id string, a driver.Answer) error {
			if a.Failure != "" {
				a = driver.Answer{Body: []byte(a.Failure)}
			}
			return s.ReplyStore.Resolve(ctx, id, a)
		}
	}, false},
	{"forgets-the-kind-of-a-failure", "RPL-6", func(s *spoiled) {
		s.resolve = func(ctx context.Context, id string, a driver.Answer) error {
			a.FailureKind = ""
			return s.ReplyStore.Resolve(ctx, id, a)
		}
	}, false},
	{"cancels-nothing", "RPL-4", func(s *spoiled) { s.cancel = func(context.Context, string) error { return nil } }, false},
	{"sleeps-through-the-answer", "RPL-4", func(s *spoiled) {
		s.wait = func(ctx context.Context, id string, wait time.Duration) (driver.Slot, error) {
			if err := backoff.Pause(ctx, wait); err != nil {
				return driver.Slot{}, err
			}
			return s.ReplyStore.Get(ctx, id)
		}
	}, true},
	{"consumes-twice", "RPL-5", func(s *spoiled) { s.consume = s.ReplyStore.Get }, false},
	{"deletes-nothing", "RPL-5", func(s *spoiled) { s.remove = func(context.Context, string) error { return nil } }, false},
	{"lists-nothing", "RPL-5", func(s *spoiled) { s.expired = func(context.Context, int) ([]string, error) { return nil, nil } }, true},
	{"lists-only-the-first", "RPL-5", func(s *spoiled) {
		s.list = func(ctx context.Context) iter.Seq2[driver.Slot, error] {
			return func(yield func(driver.Slot, error) bool) {
				for slot, err := range s.slots(ctx) {
					yield(slot, err)
					return
				}
			}
		}
	}, false},
}

// spoiled is a reply store with the fault of a saboteur. Functions that are nil pass calls on.
type spoiled struct {
	driver.ReplyStore
	create         func(ctx context.Context, id string, ttl time.Duration) error
	resolve        func(ctx context.Context, id string, answer driver.Answer) error
	cancel, remove func(ctx context.Context, id string) error
	wait           func(ctx context.Context, id string, wait time.Duration) (driver.Slot, error)
	consume        func(ctx context.Context, id string) (driver.Slot, error)
	expired        func(ctx context.Context, limit int) ([]string, error)
	list           func(ctx context.Context) iter.Seq2[driver.Slot, error]
}

func spoil(store driver.ReplyStore, by *saboteur) driver.ReplyStore {
	s := &spoiled{
		ReplyStore: store, create: store.Create, resolve: store.Resolve, cancel: store.Cancel, remove: store.Delete,
		wait: store.Wait, consume: store.Consume, expired: store.Expired,
	}
	s.list = s.slots
	if by != nil {
		by.spoil(s)
	}
	return s
}

// resolveWithout returns a Resolve that does not return one error.
func (s *spoiled) resolveWithout(code driver.Code) func(context.Context, string, driver.Answer) error {
	return func(ctx context.Context, id string, a driver.Answer) error {
		err := s.ReplyStore.Resolve(ctx, id, a)
		if errors.Is(err, code) {
			return nil
		}
		return err
	}
}

func (s *spoiled) Create(ctx context.Context, id string, ttl time.Duration) error {
	return s.create(ctx, id, ttl)
}

func (s *spoiled) Resolve(ctx context.Context, id string, answer driver.Answer) error {
	return s.resolve(ctx, id, answer)
}

func (s *spoiled) Cancel(ctx context.Context, id string) error { return s.cancel(ctx, id) }
func (s *spoiled) Delete(ctx context.Context, id string) error { return s.remove(ctx, id) }

func (s *spoiled) Wait(ctx context.Context, id string, wait time.Duration) (driver.Slot, error) {
	return s.wait(ctx, id, wait)
}

func (s *spoiled) Consume(ctx context.Context, id string) (driver.Slot, error) {
	return s.consume(ctx, id)
}

func (s *spoiled) Expired(ctx context.Context, limit int) ([]string, error) {
	return s.expired(ctx, limit)
}

func (s *spoiled) Slots(ctx context.Context) iter.Seq2[driver.Slot, error] { return s.list(ctx) }

// slots lists the slots of the store, which must be able to.
func (s *spoiled) slots(ctx context.Context) iter.Seq2[driver.Slot, error] {
	return s.ReplyStore.(driver.SlotLister).Slots(ctx)
}

// spoiledBackend is a backend whose reply store has a fault; see StoreOf.
type spoiledBackend struct {
	sabotage.Backend
	store driver.ReplyStore
}

// ExpectCaught checks that the suite of reply stores sees each saboteur through a wire. store.Open
// must pass the backend of its daemon through spoil.
func ExpectCaught(t *testing.T, store func(spoil func(driver.Opener) driver.Opener) drivertest.ReplyStore) {
	t.Helper()
	expectCaught(t, saboteurs, store)
}

// ExpectCaughtInPart is ExpectCaught for a store that calls InPart. Saboteurs that only timed cases notice
// are tested at length.
func ExpectCaughtInPart(t *testing.T, store func(spoil func(driver.Opener) driver.Opener) drivertest.ReplyStore) {
	t.Helper()
	noticed := saboteurs
	if !volume.AtLength() {
		noticed = slices.DeleteFunc(slices.Clone(saboteurs), func(s saboteur) bool { return s.timed })
	}
	expectCaught(t, noticed, store)
}

func expectCaught(t *testing.T, saboteurs []saboteur, store func(spoil func(driver.Opener) driver.Opener) drivertest.ReplyStore) {
	t.Helper()
	faults := make([]sabotage.Fault, len(saboteurs))
	for i := range saboteurs {
		faults[i] = sabotage.Fault{Name: saboteurs[i].name, Breaks: []string{saboteurs[i].breaks}}
	}
	sabotage.ExpectCaught(t, faults, func(t *testing.T, fault int) {
		spoiled := store(func(opener driver.Opener) driver.Opener {
			return &spoiledBackend{opener.(sabotage.Backend), spoil(StoreOf(opener), &saboteurs[fault])}
		})
		spoiled.Only = faults[fault].Has
		t.Run("wire", func(t *testing.T) { drivertest.RunReplyStore(t, spoiled) })
	})
}
