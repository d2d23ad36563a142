package redisbox

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/redistest"
	"github.com/mailboxmq/mailbox/redisbox/internal/shard"
)

// Closing a queue while the server is busy with another script must not end the process.
func TestClosingQueueOfBusyServerDoesNotPanic(t *testing.T) {
	t.Parallel()
	server := redistest.Standalone(t, redistest.Config("busy-reply-threshold", "20"))
	b := open(t, connect(t, server.ClientOption()), &Options{RetryFor: time.Second})
	q := openQueue(t, b)
	if _, err := q.Receive(t.Context(), driver.ReceiveRequest{Max: 1, Visibility: hold, Wait: 200 * time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it listens", func() bool { return q.subscribed() })
	idle := make(chan struct{})
	go func() {
		defer close(idle)
		_, _ = server.Do(t.Context(), "EVAL", "while true do end", "0")
	}()
	eventually(t, "it is busy", func() bool {
		_, err := server.Do(t.Context(), "PING")
		return err != nil && strings.Contains(err.Error(), "BUSY")
	})
	_ = q.Close()
	pause(2 * shard.LongPause) // it unsubscribes meanwhile
	if _, err := server.Do(t.Context(), "SCRIPT", "KILL"); err != nil {
		t.Fatal(err)
	}
	<-idle
	send(t, openQueue(t, b), "a")
}

// The same for a user without permission to unsubscribe.
func TestCloseWithoutUnsubscribePermissionDoesNotPanic(t *testing.T) {
	t.Parallel()
	server := redistest.Standalone(t, redistest.User("worker", "secret", "~*", "&*", "+@all", "-sunsubscribe"))
	option := server.ClientOption()
	option.Username, option.Password = "worker", "secret"
	b := open(t, connect(t, option), nil)
	q := openQueue(t, b)
	if _, err := q.Receive(t.Context(), driver.ReceiveRequest{Max: 1, Visibility: hold, Wait: 200 * time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it listens", func() bool { return q.subscribed() })
	_ = q.Close()
	pause(2 * shard.LongPause) // it unsubscribes meanwhile
	send(t, openQueue(t, b), "a")
}

func TestClosedBackendListsNoQueues(t *testing.T) {
	t.Parallel()
	b := open(t, connect(t, redistest.SharedServer(t).ClientOption()), &Options{Prefix: redistest.Prefix(t)})
	openQueue(t, b)
	_ = b.Close()
	for name, err := range b.Queues(t.Context()) {
		if !errors.Is(err, driver.ErrClosed) {
			t.Errorf("got %q, error %v; want ErrClosed", name, err)
		}
		return
	}
	t.Error("it lists nothing, and does not say why")
}
