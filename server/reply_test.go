package server_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/mailboxmq/mailbox/diskbox"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/dynamotest"
	"github.com/mailboxmq/mailbox/internal/testing/pgtest"
	"github.com/mailboxmq/mailbox/internal/testing/redistest"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/pgbox"
	"github.com/mailboxmq/mailbox/redisbox"
	"github.com/mailboxmq/mailbox/remotebox"
	"github.com/mailboxmq/mailbox/server"
	"github.com/mailboxmq/mailbox/sqsbox/dynamoreply"
)

// replies returns the reply store of a daemon.
func (r *running) replies() driver.ReplyStore {
	r.t.Helper()
	box := remotebox.New([]string{r.Address(server.OAP)}, r.OperatorToken().Reveal(), nil)
	r.t.Cleanup(func() { _ = box.Close() })
	return box.Replies()
}

// TestSlotsAreListedAndCountedAfterRestart (OPS-4) restarts daemons on Redis and PostgreSQL.
func TestSlotsAreListedAndCountedAfterRestart(t *testing.T) {
	for name, backend := range map[string]func() string{
		"Redis":      func() string { return "redis://" + redistest.Standalone(t).Addr() },
		"PostgreSQL": func() string { return pgtest.Start(t, "fsync=off").URL() },
	} {
		t.Run(name, func(t *testing.T) {
			config := server.Config{Profile: server.Macronode, DataDir: t.TempDir(), Backend: backend()}
			first := start(t, config)
			store := first.replies()
			var want []string
			for n := range 20 {
				want = append(want, fmt.Sprintf("slot-%02d", n))
				if err := store.Create(t.Context(), want[n], time.Hour); err != nil {
					t.Fatal(err)
				}
			}
			first.halt()
			second := start(t, config)
			var got []string
			for slot, err := range second.replies().(driver.SlotLister).Slots(t.Context()) {
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, slot.ID)
			}
			if slices.Sort(got); !slices.Equal(got, want) {
				t.Errorf("listed %q", got)
			}
			for until := time.Now().Add(time.Minute); ; <-time.After(20 * time.Millisecond) { // they are counted in the background
				metrics := second.get("/metrics")
				if strings.Contains(metrics, `mailbox_share_used{share="reply_slots"} 20`) {
					break
				}
				if time.Now().After(until) {
					t.Fatal("20 slots are not counted")
				}
			}
		})
	}
}

// dynamoBackend is a backend whose reply store cannot list slots.
type dynamoBackend struct {
	*membox.Backend
	store driver.ReplyStore
}

func (b dynamoBackend) Replies() driver.ReplyStore { return b.store }

// TestEmbeddedBackendHasItsReplyStore (RPL-5): each form of a method Replies is found.
func TestEmbeddedBackendHasItsReplyStore(t *testing.T) {
	redis, err := rueidis.NewClient(redistest.Standalone(t).ClientOption())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(redis.Close)
	for name, open := range map[string]func() (driver.Backend, error){
		"disk": func() (driver.Backend, error) { return diskbox.Open(t.Context(), t.TempDir(), nil) },
		"Redis": func() (driver.Backend, error) {
			return redisbox.Open(t.Context(), redis, &redisbox.Options{Prefix: redistest.Prefix(t)})
		},
		"PostgreSQL": func() (driver.Backend, error) {
			return pgbox.Open(t.Context(), pgtest.Start(t, "fsync=off").Pool(t), &pgbox.Options{Schema: pgtest.Schema(), Migrate: true})
		},
	} {
		t.Run(name, func(t *testing.T) {
			backend, err := open()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = backend.Close() })
			r := startOn(t, server.Config{DataDir: t.TempDir()}, backend)
			if err := r.replies().Create(t.Context(), "slot", time.Hour); err != nil {
				t.Error(err)
			}
			if status, fields := r.post(r.OperatorToken(), "/v1/replies/list", ""); status != http.StatusOK || fields["slot"] != "slot" {
				t.Errorf("the list is answered with %d %v", status, fields)
			}
		})
	}
}

// TestStoreWithoutListsRefusesThem (RPL-5): DynamoDB has no list of slots, and the daemon says so.
func TestStoreWithoutListsRefusesThem(t *testing.T) {
	store, err := dynamoreply.Open(t.Context(), dynamotest.Start(t).Client(), dynamotest.Table(), &dynamoreply.Options{CreateTable: true})
	if err != nil {
		t.Fatal(err)
	}
	r := startOn(t, server.Config{DataDir: t.TempDir()}, dynamoBackend{membox.New(nil), store})
	if err := r.replies().Create(t.Context(), "slot", time.Hour); err != nil {
		t.Error(err)
	}
	status, fields := r.post(r.OperatorToken(), "/v1/replies/list", "")
	if text := fmt.Sprint(fields); status != http.StatusBadRequest || !strings.Contains(text, "cannot list reply slots") {
		t.Errorf("the list is answered with %d %v", status, fields)
	}
}
