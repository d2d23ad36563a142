package sqsclients_test

import (
	"flag"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
	"strings"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/driver/drivertest"
	"github.com/mailboxmq/mailbox/internal/testing/redistest"
	"github.com/mailboxmq/mailbox/internal/testing/sqstest"
	"github.com/mailboxmq/mailbox/sqsbox"
)

// runBeside runs many cases concurrently: they mostly wait, because SQS counts in
// seconds.
func runBeside() {
	flag.Parse()
	if err := flag.Set("test.parallel", "12"); err != nil {
		panic(err) // the testing package no longer has this flag
	}
}

// A site is sqsbox on a daemon.
type site struct {
	*sqsbox.Backend
	d      *daemon
	prefix string
}

func openSite(t testing.TB, d *daemon, prefix string) *site {
	t.Helper()
	backend, err := sqsbox.Open(t.Context(), d.bareClient(3), &sqsbox.Options{Prefix: prefix, Create: true, Poll: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = backend.Close() })
	return &site{backend, d, prefix}
}

// realClock are cases that cannot be passed through two processes on the real clock.
var realClock = map[string]string{
	"SND-1/after a kill: ids stay unique": "a kill may lose that messages were given back, and then the case waits ten minutes for them",

	"ACK-1/after a kill: what was acked stays gone": "a standard queue of SQS accepts used receipts; " +
		"only the process that received the message refuses them, and the case restarts it",

	"VIS-6/of an ack and a receiver that waits for the expiry, exactly one wins": edge,
	"VIS-6/of many acks and many expiries, each message goes to exactly one":     edge,
}

const edge = "a standard queue of SQS removes a message even if the ack arrives after the lease has ended; sqsbox, which gets the answer after " +
	"the receipt's time, cannot know whether it did, and returns ErrUnavailable. The cases expect success or ErrReceiptExpired, and wait in vain for " +
	"messages that such an ack has removed. TestNoAckAtItsDeadlineLosesAMessage checks what does hold"

// conform runs the suite through sqsbox, the SDK and a daemon. Cases share the daemon;
// cases that restart it have one of their own, and kill it.
func conform(t *testing.T, args ...string) {
	shared := start(t, args...)
	drivertest.Run(t, drivertest.Backend{
		Open: func(t testing.TB) driver.Opener {
			sqstest.SkipListed(t, sqstest.Unsupported, realClock)
			t.(*testing.T).Parallel()
			if strings.Contains(t.Name(), "/after_") {
				return openSite(t, start(t, args...), sqstest.Prefix())
			}
			return openSite(t, shared, sqstest.Prefix())
		},
		Restart: func(t testing.TB, old driver.Opener, how drivertest.Crash) driver.Opener {
			was := old.(*site)
			if how == drivertest.CrashClean {
				if err := was.Close(); err != nil {
					t.Error(err)
				}
				was.d.Stop(t)
			} else {
				was.d.Kill()
			}
			was.d.launch()
			return openSite(t, was.d, was.prefix)
		},
		Crashes: []drivertest.Crash{drivertest.CrashClean, drivertest.CrashKill},
		Tick:    time.Second,
	})
}

func TestConformanceOnDisk(t *testing.T) {
	volume.Repeats(t)
	conform(t)
}

func TestConformanceOnRedis(t *testing.T) {
	volume.InFull(t)
	conform(t, "--backend=redis://"+redistest.SharedServer(t).Addr())
}
