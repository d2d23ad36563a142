package diskbox

import (
	"testing"

	"github.com/mailboxmq/mailbox/internal/testing/volume"
)

// The tests in the crash files cut the power of machines at all moments: before and after every
// operation that affects the disk, and after every answer. Each image of a disk is opened, and
// its content is compared with the models. Everything happens in virtual time.
//
// MAILBOX_VOLUME sets the total number of images (see package volume), and MAILBOX_SEED the first seed.
// A seed fixes the operations of clients and the moments of power cuts; with more than one
// client, it does not fix the scheduling.

const crashDir = "/data/queues"

// crashImages returns the number of images to take.
func crashImages(t testing.TB) int {
	t.Helper()
	return volume.Count(t, volume.Part(2000, 10), 1_000_000)
}

func TestNoPowerCutLosesWhatWasAcknowledged(t *testing.T) {
	volume.Repeats(t)
	var summary crashSummary
	summary.fill(t, volume.Count(t, volume.Part(10_000, 50), 1_000_000), nil)
	summary.expectNone(t)
}

// Before Open has returned, the only promise is that the next Open works.
func TestPowerCutsDuringCreationLeaveOpenableDirectory(t *testing.T) {
	volume.Repeats(t)
	var summary crashSummary
	summary.fill(t, max(crashImages(t)/10, 50), func(l *crashEnv) {
		l.dense, l.steps, l.generations, l.nests = true, 0, 1, 3
	})
	summary.expectNone(t)
}
