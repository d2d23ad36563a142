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

type receivedOnce struct{ times, deliveries int }

func (r *receivedOnce) Received(_ *completion.Round, deliveries []driver.Delivery, _ error) {
	r.times++
	r.deliveries += len(deliveries)
}

// TestStartedReceiveEndsAfterSearchWithoutResult starts receives that search a long backlog in
// which every group is blocked by a delayed message.
func TestStartedReceiveEndsAfterSearchWithoutResult(t *testing.T) {
	for _, wait := range []time.Duration{0, time.Second} {
		synctest.Test(t, func(t *testing.T) {
			m := start(t, storetest.NewDisk())
			q := configure(t, m, "strict", driver.Config{StrictGroups: true})
			const groups = 300
			for range 2 {
				var batch []driver.Outgoing
				for g := range groups {
					batch = append(batch, driver.Outgoing{Body: []byte("body"), Group: fmt.Sprint("group ", g)})
				}
				send(t, q, batch...)
			}
			var nacks []driver.Nack
			for len(nacks) < groups {
				for _, d := range lease(t, q, 1, time.Hour) {
					nacks = append(nacks, driver.Nack{Receipt: d.Receipt, Delay: time.Hour})
				}
			}
			if err := q.Nack(t.Context(), nacks); err != nil {
				t.Fatal(err)
			}
			closeIt(t, m)
			m = start(t, m.disk)
			defer closeIt(t, m)
			q = openQueue(t, m, "strict")
			var round completion.Round
			got := new(receivedOnce)
			completion.Of(q).StartReceive(&round, driver.ReceiveRequest{Max: 1, Visibility: time.Minute, Wait: wait}, got)
			round.End()
			time.Sleep(wait + time.Second)
			synctest.Wait()
			if got.times != 1 || got.deliveries != 0 {
				t.Errorf("wait of %v: completed %d times with %d deliveries; want once with none", wait, got.times, got.deliveries)
			}
		})
	}
}
