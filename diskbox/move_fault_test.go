package diskbox

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/storetest"
)

// TestMoveRefusedByDiskIsNotCounted, and every message is in one of the two
// queues afterwards, whatever the disk has kept.
func TestMoveRefusedByDiskIsNotCounted(t *testing.T) {
	const messages = 20
	for _, late := range []int{0, 1} {
		disk := storetest.NewDisk()
		options := Options{fs: disk.FS(), boot: bubbleClock{}, small: true, OnFail: func(error) {}}
		b, err := Open(t.Context(), "queues", &options)
		if err != nil {
			t.Fatal(err)
		}
		q := configure(t, b, "orders", driver.Config{})
		configure(t, b, "shelter", driver.Config{})
		for i := range messages {
			send(t, q, driver.Outgoing{Body: fmt.Append(nil, i)})
		}
		operations := 0
		disk.Before(func(storetest.Operation) error {
			if operations++; operations <= late {
				return nil
			}
			return errors.New("the disk is gone")
		})
		moved, err := q.Move(t.Context(), "shelter", 0)
		if !errors.Is(err, driver.ErrUnavailable) || moved != 0 {
			t.Errorf("moved %d, error %v; want none and %q", moved, err, string(driver.ErrUnavailable))
		}
		_ = b.Close()
		for seed := range uint64(8) {
			image := storetest.DiskFrom(disk.Image(rand.New(rand.NewPCG(seed, 0))))
			options.fs = image.FS()
			again, err := Open(t.Context(), "queues", &options)
			if err != nil {
				t.Fatal(err)
			}
			found := make(map[string]bool)
			for _, name := range []string{"orders", "shelter"} {
				for {
					got, err := configure(t, again, name, driver.Config{}).Receive(t.Context(), driver.ReceiveRequest{Max: 9, Visibility: time.Hour})
					if err != nil {
						t.Fatal(err)
					}
					for _, d := range got {
						if found[d.ID] {
							t.Errorf("%s is there twice", d.ID)
						}
						found[d.ID] = true
					}
					if len(got) == 0 {
						break
					}
				}
			}
			if len(found) != messages {
				t.Errorf("%d of %d messages are left", len(found), messages)
			}
			if err := again.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}
