package capability

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestInspectShowsCombinedCaveats(t *testing.T) {
	ring := NewKeyRing(NewKey())
	minted := mustMint(t, ring, "acme", AllOperations(), Queues(AnyQueue()), ExpiresAt(time.Now().Add(time.Hour)))
	for _, test := range []struct {
		caveats []Caveat
		want    string
	}{
		{[]Caveat{Operations(OpSend, OpRecv), Operations(OpRecv, OpAck)}, "recv * [for tenant acme]"},
		{[]Caveat{Operations(OpSend), Operations(OpRecv)}, " * [for tenant acme]"},
		{[]Caveat{Operations(OpSend), Queues(QueuesUnder("a:"), Queue("b")), Queues(Queue("a:x"), Queue("b"), Queue("c"))}, "send a:x,b [for tenant acme]"},
		{[]Caveat{Operations(OpSend), Queues(QueuesUnder("a:b:"), Queue("a:")), Queues(QueuesUnder("a:"))}, "send a:b:* [for tenant acme]"},
		{[]Caveat{Operations(OpSend), Queues(Queue("a")), Queues(Queue("b"))}, "send  [for tenant acme]"},
		{
			[]Caveat{Operations(OpSend), MessagesPerSecond(10), MessagesPerSecond(3), MessagesPerSecond(20), MaxBodyBytes(9), MaxBodyBytes(20), Tenant("acme")},
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
