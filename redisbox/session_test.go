package redisbox

import (
	"fmt"
	"slices"
	"testing"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/redistest"
	"github.com/mailboxmq/mailbox/redisbox/internal/shard"
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
		for k := 0; q.ShardOf(msg.Group) == q.ShardOf(msg.DedupKey); k++ {
			msg.Group = fmt.Sprint("group", i, ".", k)
		}
		sendOne(t, q, msg)
	}
	drainAll(t, q, n)
	sessions := 0
	for _, s := range q.Shards {
		held, err := client.Do(t.Context(), client.B().Zcard().Key(s.Keys[slices.Index(shard.KeyNames, "sessions")]).Build()).AsInt64()
		if err != nil {
			t.Fatal(err)
		}
		sessions += int(held)
	}
	if sessions > 20 {
		t.Errorf("%d messages left %d sessions, which stay for an hour", n, sessions)
	}
}
