package redisbox

import (
	"fmt"
	"slices"
	"testing"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/redistest"
)

// Sending with a group and a key must not leave four sessions per message on the server
// for an hour.
func TestSendsWithDedupKeysReuseSessions(t *testing.T) {
	t.Parallel()
	server := redistest.SharedServer(t)
	client := connect(t, server.ClientOption())
	b := open(t, client, &Options{Prefix: redistest.Prefix(t)})
	q := configured(t, b, driver.Config{Shards: 2})
	const n = 200
	for i := range n {
		msg := driver.Outgoing{Body: []byte("a"), DedupKey: fmt.Sprint("key", i), Group: fmt.Sprint("group", i)}
		for k := 0; q.shardOf(msg.Group) == q.shardOf(msg.DedupKey); k++ {
			msg.Group = fmt.Sprint("group", i, ".", k)
		}
		sendOne(t, q, msg)
	}
	drainAll(t, q, n)
	sessions := 0
	for _, s := range q.shards {
		held, err := client.Do(t.Context(), client.B().Zcard().Key(s.keys[slices.Index(keyNames, "sessions")]).Build()).AsInt64()
		if err != nil {
			t.Fatal(err)
		}
		sessions += int(held)
	}
	if sessions > 20 {
		t.Errorf("%d messages left %d sessions, which stay for an hour", n, sessions)
	}
}

func TestSessionsOfBurstAreDropped(t *testing.T) {
	var pool sessionPool
	const n = 100
	rush := make([]*session, n)
	for i := range rush {
		rush[i] = pool.take()
		rush[i].next()
	}
	for _, sess := range rush {
		pool.put(sess)
	}
	if len(pool.idle) != n {
		t.Fatalf("%d of %d sessions are there", len(pool.idle), n)
	}
	for _, sess := range rush {
		sess.since = sess.since.Add(-2 * sessionFor)
	}
	sess := pool.take()
	sess.next()
	pool.put(sess)
	if len(pool.idle) != 1 {
		t.Errorf("long after the rush %d sessions are kept, want 1", len(pool.idle))
	}
}
