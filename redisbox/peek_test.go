package redisbox

import (
	"strings"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/redistest"
)

// CNT-2: messages that were leased together have one deadline, and all are shown.
func TestPeekShowsAllMessagesOfOneDeadline(t *testing.T) {
	t.Parallel()
	b := open(t, connect(t, redistest.SharedServer(t).ClientOption()), &Options{Prefix: redistest.Prefix(t)})
	q := openQueue(t, b)
	msgs := make([]driver.Outgoing, 200)
	for i := range msgs {
		msgs[i].Body = []byte(strings.Repeat("a", 20<<10))
	}
	if _, err := q.Send(t.Context(), msgs); err != nil {
		t.Fatal(err)
	}
	receive(t, q, len(msgs), hold)
	for i := range msgs {
		msgs[i].Delay = time.Minute
	}
	if _, err := q.Send(t.Context(), msgs); err != nil {
		t.Fatal(err)
	}
	seen := make(map[driver.State]int)
	for m, err := range q.Peek(t.Context(), driver.Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		seen[m.State]++
	}
	if seen[driver.StateInFlight] != len(msgs) || seen[driver.StateDelayed] != len(msgs) {
		t.Errorf("of %d in flight and as many delayed: %v", len(msgs), seen)
	}
}
