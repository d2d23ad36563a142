package diskbox

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/completion"
	"github.com/mailboxmq/mailbox/internal/testing/storetest"
)

// TestStartedSendsStayInOrderWithRetention starts sends to a queue in which one message has to
// be published before the next is staged.
func TestStartedSendsStayInOrderWithRetention(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := start(t, storetest.NewDisk())
		defer closeIt(t, m)
		q := configure(t, m, "kept", driver.Config{MaxMessages: 1000, RetainReady: driver.Retention{Count: 1000}})
		const sends = 50
		var round completion.Round
		for i := range sends {
			msgs := []driver.Outgoing{{Body: fmt.Appendf(nil, "%03d", i)}}
			completion.Of(q).StartSend(&round, msgs, func(_ *completion.Round, _ []driver.Sent, err error) {
				if err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		got := lease(t, q, sends, time.Minute)
		if len(got) != sends {
			t.Fatalf("received %d messages, want %d", len(got), sends)
		}
		for i := range got {
			if want := fmt.Sprintf("%03d", i); string(got[i].Body) != want {
				t.Fatalf("message %d is %s, want %s", i, got[i].Body, want)
			}
		}
	})
}
