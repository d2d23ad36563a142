package oapapi_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/internal/testing/redistest"
	"github.com/mailboxmq/mailbox/redisbox"
	"github.com/mailboxmq/mailbox/reply"
)

// TestCallOverRedisRunsThreeScripts counts what a daemon asks its server for: one script to create the slot and
// send the request, one to lease it, and one to store the answer and ack; the slot is removed without one.
func TestCallOverRedisRunsThreeScripts(t *testing.T) {
	server := redistest.Standalone(t)
	proxy := redistest.NewProxy(t, server.Addr())
	option := server.ClientOption()
	option.InitAddress, option.ForceSingleClient = []string{proxy.Addr()}, true
	connection, err := rueidis.NewClient(option)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(connection.Close)
	backend, err := redisbox.Open(t.Context(), connection, &redisbox.Options{Prefix: redistest.Prefix(t)})
	if err != nil {
		t.Fatal(err)
	}
	d := newAsking(t, backend)
	d.make(t, "sums")
	remote := newListening(t, d)
	box := openSums(t, remote.Backend)
	client := reply.NewClient[[]int, string](box, remote.Replies(), nil)
	var scripts atomic.Int64
	proxy.OnRequest(func(args []string) redistest.Action {
		if strings.HasPrefix(args[0], "EVAL") {
			scripts.Add(1)
		}
		return redistest.Pass
	})
	call := func() {
		t.Helper()
		future, err := client.Send(t.Context(), []int{1})
		if err != nil {
			t.Fatal(err)
		}
		got, err := box.Receive(t.Context(), mailbox.WithVisibility(time.Hour))
		if err != nil || len(got) != 1 {
			t.Fatal(got, err)
		}
		if err := mailbox.Reply(t.Context(), got[0], "yes"); err != nil {
			t.Fatal(err)
		}
		if answer, err := future.Wait(t.Context()); err != nil || answer != "yes" {
			t.Fatal(answer, err)
		}
	}
	for n := 0; ; n++ { // until the scripts are loaded, the buckets are known, and no watcher looks meanwhile
		scripts.Store(0)
		call()
		call() // it comes behind the removal of the slot before
		got := scripts.Load()
		if got == 2*3 {
			return
		}
		if n == 200 {
			t.Fatalf("two calls run %d scripts, want 6", got)
		}
	}
}
