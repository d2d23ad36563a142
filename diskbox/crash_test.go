package diskbox

import (
	"os"
	"strconv"
	"testing"
)

// The tests in the crash files cut the power of machines at all moments: before
// and after every operation that matters to what is on disk, and after every
// answer. Each image of a disk is opened, and what is in it is compared with the
// books. Everything happens in virtual time.
//
// MAILBOX_CRASH_IMAGES sets how many images, in all, and MAILBOX_CRASH_SEED the
// first seed. A seed fixes what clients do and where power is cut; with more than
// one client, it does not fix who runs when.

const crashDir = "/data/queues"

// crashImages returns how many images to take: what the environment says, or a
// number that suits everyday tests.
func crashImages(t testing.TB) int {
	t.Helper()
	if raceDetector {
		return numberFromEnv(t, "MAILBOX_CRASH_IMAGES", 200)
	}
	return numberFromEnv(t, "MAILBOX_CRASH_IMAGES", 2000)
}

// numberFromEnv returns the number in a variable of the environment, and usual
// if it is not set.
func numberFromEnv(t testing.TB, variable string, usual int) int {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return usual
	}
	number, err := strconv.Atoi(text)
	if err != nil || number < 1 {
		t.Fatalf("%s is %q; set it to a number", variable, text)
	}
	return number
}

func TestNoPowerCutLosesWhatWasAcknowledged(t *testing.T) {
	var tally crashTally
	tally.fill(t, crashImages(t), nil)
	tally.expectNone(t)
}

// Nothing is promised before Open has returned, but that the next one works.
func TestPowerCutsWhileTheDirectoryIsMadeLeaveOneThatOpens(t *testing.T) {
	var tally crashTally
	tally.fill(t, max(crashImages(t)/10, 50), func(l *crashLife) {
		l.dense, l.steps, l.generations, l.nests = true, 0, 1, 3
	})
	tally.expectNone(t)
}
