package dynamoreply_test

import (
	"errors"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/dynamotest"
	"github.com/mailboxmq/mailbox/sqsbox/dynamoreply"
)

// An env is a store in a table of its own, and the wire to it.
type env struct {
	*wire
	server *dynamotest.Server
	table  string
	store  *dynamoreply.Store
}

// newEnv opens a store for a test in virtual time. The server is started by the
// caller, because it cannot be started in a bubble.
func newEnv(t *testing.T, server *dynamotest.Server, options *dynamoreply.Options) *env {
	t.Helper()
	d := &env{wire: newWire(server), server: server, table: dynamotest.Table()}
	d.virtual = true
	d.store = d.open(t, server, d.table, options)
	t.Cleanup(func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		wantEqual(t, "reads that are not consistent", d.stale, 0)
	})
	return d
}

// another opens the same table as another process would.
func (d *env) another(t *testing.T) *env {
	t.Helper()
	other := &env{wire: newWire(d.server), server: d.server, table: d.table}
	other.virtual, other.shows = d.virtual, d.shows
	other.store = other.open(t, d.server, d.table, nil)
	return other
}

func wantError(t *testing.T, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Errorf("error is %v, want %v", err, target)
	}
}

func wantEqual[V comparable](t *testing.T, what string, got, want V) {
	t.Helper()
	if got != want {
		t.Errorf("%s is %v, want %v", what, got, want)
	}
}

// wantBetween checks a number that need not be exact.
func wantBetween[N int | time.Duration](t *testing.T, what string, got, least, most N) {
	t.Helper()
	if got < least || got > most {
		t.Errorf("%s is %v, want %v to %v", what, got, least, most)
	}
}

func create(t *testing.T, store driver.ReplyStore, id string) {
	t.Helper()
	wantError(t, store.Create(t.Context(), id, time.Hour), nil)
}

func tea(answer string) driver.Answer { return driver.Answer{Body: []byte(answer)} }
