package verify

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/internal/keyring"
)

func TestInspectShowsCombinedCaveats(t *testing.T) {
	ring := keyring.New(keyring.NewKey())
	minted := mustMint(t, ring, "acme", capability.AllOperations(), capability.Queues(capability.AnyQueue()), capability.ExpiresAt(time.Now().Add(time.Hour)))
	for _, test := range []struct {
		caveats []capability.Caveat
		want    string
	}{
		{[]capability.Caveat{capability.Operations(capability.OpSend, capability.OpRecv), capability.Operations(capability.OpRecv, capability.OpAck)}, "recv * [for tenant acme]"},
		{[]capability.Caveat{capability.Operations(capability.OpSend), capability.Operations(capability.OpRecv)}, " * [for tenant acme]"},
		{[]capability.Caveat{capability.Operations(capability.OpSend), capability.Queues(capability.QueuesUnder("a:"), capability.Queue("b")), capability.Queues(capability.Queue("a:x"), capability.Queue("b"), capability.Queue("c"))}, "send a:x,b [for tenant acme]"},
		{[]capability.Caveat{capability.Operations(capability.OpSend), capability.Queues(capability.QueuesUnder("a:b:"), capability.Queue("a:")), capability.Queues(capability.QueuesUnder("a:"))}, "send a:b:* [for tenant acme]"},
		{[]capability.Caveat{capability.Operations(capability.OpSend), capability.Queues(capability.Queue("a")), capability.Queues(capability.Queue("b"))}, "send  [for tenant acme]"},
		{
			[]capability.Caveat{capability.Operations(capability.OpSend), capability.MessagesPerSecond(10), capability.MessagesPerSecond(3), capability.MessagesPerSecond(20), capability.MaxBodyBytes(9), capability.MaxBodyBytes(20), capability.Tenant("acme")},
			"send * [for tenant acme; at most 3 messages per second; bodies of at most 9 bytes]",
		},
	} {
		d := mustNarrow(t, minted, test.caveats...).Inspect()
		var operations, queues []string
		for _, o := range d.Operations {
			operations = append(operations, o.String())
		}
		for _, q := range d.Queues {
			queues = append(queues, q.String())
		}
		got := fmt.Sprintf("%s %s [%s]", strings.Join(operations, ","), strings.Join(queues, ","), strings.Join(d.Limits, "; "))
		if got != test.want {
			t.Errorf("%v allow\n%s, want\n%s", test.caveats, got, test.want)
		}
	}
}
