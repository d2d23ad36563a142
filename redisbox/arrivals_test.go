package redisbox

import (
	"strconv"
	"testing"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/redistest"
)

// TestOldArrivalsAreForgottenGradually: the server runs one script at a time, and one move
// can bring a million messages.
func TestOldArrivalsAreForgottenGradually(t *testing.T) {
	t.Parallel()
	b := open(t, connect(t, redistest.SharedServer(t).ClientOption()), &Options{Prefix: redistest.Prefix(t), Defaults: driver.Config{MaxDeliveries: driver.Off}})
	q, shelter := openQueue(t, b), openNamed(t, b, "shelter")
	const old = 5000
	key, client := keyOf(shelter, "arrivals"), b.client
	add := client.B().Zadd().Key(key).ScoreMember().ScoreMember(1, "0")
	for i := 1; i < old; i++ {
		add = add.ScoreMember(1, strconv.Itoa(i))
	}
	if err := client.Do(t.Context(), add.Build()).Error(); err != nil {
		t.Fatal(err)
	}
	left := func() int64 {
		n, err := client.Do(t.Context(), client.B().Zcount().Key(key).Min("1").Max("1").Build()).AsInt64()
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	send(t, q, "a")
	if n, err := q.Move(t.Context(), "shelter", 0); n != 1 || err != nil {
		t.Fatalf("moved %d, error %v", n, err)
	}
	if n := left(); n == old || n < old-3000 {
		t.Errorf("%d of %d are left after one message, want a few less", n, old)
	}
	for range 10 { // leases that end
		receive(t, shelter, 1, 0)
	}
	if n := left(); n > 0 {
		t.Errorf("%d of %d are left in the end", n, old)
	}
}
