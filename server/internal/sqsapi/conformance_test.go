package sqsapi_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/mailboxmq/mailbox/diskbox"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/driver/drivertest"
	"github.com/mailboxmq/mailbox/internal/testing/sqstest"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/server/internal/sqsapi"
	"github.com/mailboxmq/mailbox/sqsbox"
)

const wholeSeconds = "SQS counts in whole seconds, and virtual time shows the difference"

// inSeconds are cases, as "ID/title", that need more exact times than SQS has.
var inSeconds = map[string]string{
	"SND-2/hundreds of delays in any order are all kept":                               wholeSeconds,
	"SND-2/hundreds of due times in any order are all kept":                            wholeSeconds,
	"VIS-1/a visibility ends when it was asked to, to the fraction of a second":        wholeSeconds,
	"VIS-3/an extension ends when it was asked to, to the fraction of a second":        wholeSeconds,
	"ACK-1/the delay of a nack ends when it was asked to, to the fraction of a second": wholeSeconds,
}

// A pair is sqsbox with the SDK as client, and this surface on a backend as server.
type pair struct {
	*sqsbox.Backend
	daemon *daemon
}

func openPair(t testing.TB, d *daemon) *pair {
	t.Helper()
	client, err := sqsbox.Open(t.Context(), d.client("").bare, &sqsbox.Options{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return &pair{client, d}
}

// restartClient opens a new client, which must find all messages.
func restartClient(t testing.TB, old driver.Opener, _ drivertest.Crash) driver.Opener {
	was := old.(*pair)
	if err := was.Close(); err != nil {
		t.Error(err)
	}
	return openPair(t, was.daemon)
}

// TestConformance runs the whole suite through sqsbox and the SDK.
func TestConformance(t *testing.T) {
	volume.Repeats(t)
	drivertest.Run(t, inMemory(setup{}))
}

// TestConformanceWithoutTakeover is the same with every request read by package http.
func TestConformanceWithoutTakeover(t *testing.T) {
	volume.InFull(t)
	drivertest.Run(t, inMemory(setup{plain: true}))
}

// inMemory returns this surface, as s says, in front of the memory backend.
func inMemory(s setup) drivertest.Backend {
	return drivertest.Backend{
		Open: func(t testing.TB) driver.Opener {
			sqstest.SkipListed(t, sqstest.Unsupported, inSeconds)
			backend := membox.New(nil)
			t.Cleanup(func() { _ = backend.Close() })
			s := s
			s.opener = backend
			return openPair(t, serve(t, s))
		},
		Restart: restartClient, Virtual: true,
	}
}

func TestSkippedCasesExist(t *testing.T) {
	cases := drivertest.Cases()
	for _, title := range slices.AppendSeq(slices.Collect(maps.Keys(inSeconds)), maps.Keys(inRealTime)) {
		if !slices.Contains(cases, title) {
			t.Errorf("there is no case %q to skip", title)
		}
	}
}

// TestConformanceOnDisk is the same in front of the disk backend, with real files.
func TestConformanceOnDisk(t *testing.T) {
	volume.OnlyAtLength(t, "it takes a minute and a half")
	drivertest.Run(t, drivertest.Backend{
		Open: func(t testing.TB) driver.Opener {
			sqstest.SkipListed(t, sqstest.Unsupported, inSeconds)
			backend, err := diskbox.Open(t.Context(), t.TempDir(), &diskbox.Options{MaxBodyBytes: sqsapi.MaxPayloadBytes})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = backend.Close() })
			return openPair(t, serve(t, setup{opener: backend}))
		},
		Restart: restartClient, Virtual: true,
	})
}
