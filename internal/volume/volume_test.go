package volume_test

import (
	"testing"

	"github.com/mailboxmq/mailbox/internal/volume"
)

func TestSomethingIsAlwaysDoneAndNeverMoreThanAll(t *testing.T) {
	for _, n := range []int{1, 3, 4, 10_000} {
		if got := volume.Of(n); got < 1 || got > n || got < n/4 {
			t.Errorf("of %d, %d are done", n, got)
		}
	}
}
