package server

import (
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/mailboxmq/mailbox/internal/revocation"
	"github.com/mailboxmq/mailbox/internal/testing/redistest"
	"github.com/mailboxmq/mailbox/redisbox"
)

// TestDaemonsOnOneRedisCompactLog lets daemons of two processes find a log
// that is mostly obsolete, at the same time.
func TestDaemonsOnOneRedisCompactLog(t *testing.T) {
	server := redistest.Standalone(t)
	prefix := redistest.Prefix(t)
	open := func() *redisbox.Backend {
		client, err := rueidis.NewClient(server.ClientOption())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(client.Close)
		backend, err := redisbox.Open(t.Context(), client, &redisbox.Options{Prefix: prefix})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = backend.Close() })
		return backend
	}
	backends := []*redisbox.Backend{open(), open()}
	writer, err := shareOnce(t, backends[0])
	if err != nil {
		t.Fatal(err)
	}
	ago := time.Now().Add(-100 * time.Hour)
	lasting := revokeTokens(t, writer, 20, time.Time{})
	writer.mu.Lock()
	for range 300 {
		if err := writer.appendLocked(t.Context(), revocation.Revocation{Token: randomID(), At: ago, Until: ago}); err != nil {
			t.Fatal(err)
		}
	}
	writer.mu.Unlock()
	if n, _ := logLength(t, backends[0]); n != 320 {
		t.Fatalf("setup: %d messages", n)
	}
	daemons := make([]*sharedRevocations, len(backends))
	var starting sync.WaitGroup
	for i, backend := range backends {
		starting.Go(func() {
			var err error
			if daemons[i], err = shareOnce(t, backend); err == nil {
				err = daemons[i].sync(t.Context())
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	starting.Wait()
	if t.Failed() {
		return
	}
	if n, mark := logLength(t, backends[1]); n != 20 || unfinished(mark) {
		t.Errorf("%d messages are left, %q; want 20", n, mark)
	}
	more := revokeTokens(t, daemons[0], 1, time.Time{})
	if err := daemons[1].sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantAllRevoked(t, "the second daemon", daemons[1], append(more, lasting...))
	late, err := shareOnce(t, open())
	if err != nil {
		t.Fatal(err)
	}
	wantAllRevoked(t, "one that starts later", late, append(more, lasting...))
	for _, s := range append(daemons, writer, late) {
		if err := s.close(); err != nil {
			t.Error(err)
		}
	}
}
