package sqsbox_test

import (
	"flag"
	"slices"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/driver/drivertest"
	"github.com/mailboxmq/mailbox/internal/testing/sqstest"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
	"github.com/mailboxmq/mailbox/sqsbox"
)

// TestMain runs many tests concurrently: they mostly wait, because SQS counts in
// seconds.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "12"); err != nil {
		panic(err) // the testing package no longer has this flag
	}
	sqstest.Main(m)
}

const (
	oneOfAGroup = "fauxqs delivers one message of a group in a batch; SQS as many as there are, in order"
	noSource    = "fauxqs does not report the source of a dead letter; SQS does, in DeadLetterQueueSourceArn"
)

// fauxqsFails are cases that fauxqs fails, and SQS would pass.
var fauxqsFails = map[string]string{
	"ORD-4/one batch may hold several of a group, in order":                            oneOfAGroup,
	"ORD-4/a group goes on when all before the next is settled, not earlier":           oneOfAGroup,
	"ORD-4/a released head is deliverable while later ones of its batch are in flight": oneOfAGroup,
	"ORD-4/an expired head is deliverable while later ones of its batch are in flight": oneOfAGroup,
	"ORD-4/a message nacked out of a batch comes back before what was behind it":       oneOfAGroup,
	"ORD-4/an expired message keeps its place in its group":                            oneOfAGroup,
	"ORD-4/a nack delay does not block earlier messages of the group":                  oneOfAGroup,
	"ORD-4/a receive takes what it may of one group and then of the next":              oneOfAGroup,
	"ORD-4/a group that was received from goes behind the others":                      oneOfAGroup,
	"ORD-4/of the groups that may go, the one that was served longest ago goes first":  oneOfAGroup,
	"DLQ-9/a strict group moves in order, and not past what keeps it back":             oneOfAGroup,
	"DLQ-9/without a target dead letters move back to their source":                    noSource,
}

// A site is a backend under test, with the prefix of its queues.
type site struct {
	*sqsbox.Backend
	prefix string
}

func openSite(t testing.TB, prefix string) *site {
	t.Helper()
	backend, err := sqsbox.Open(t.Context(), sqstest.Shared(t).Client(), &sqsbox.Options{Prefix: prefix, Create: true, Poll: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = backend.Close() })
	return &site{Backend: backend, prefix: prefix}
}

// restart opens a new client, which must find all messages: a client cannot prove more
// about durability.
func restart(t testing.TB, old driver.Opener, _ drivertest.Crash) driver.Opener {
	t.Helper()
	was := old.(*site)
	if err := was.Close(); err != nil {
		t.Error(err)
	}
	return openSite(t, was.prefix)
}

// begin runs a case concurrently with others, and skips it if it cannot pass.
func begin(t testing.TB, more ...map[string]string) {
	t.Helper()
	sqstest.SkipListed(t, append(more, sqstest.Unsupported, sqstest.UnsupportedByAWS, fauxqsFails)...)
	if t, ok := t.(*testing.T); ok {
		t.Parallel()
	}
}

func TestConformance(t *testing.T) {
	volume.Repeats(t)
	drivertest.Run(t, drivertest.Backend{
		Open: func(t testing.TB) driver.Opener {
			begin(t)
			return openSite(t, sqstest.Prefix())
		},
		Restart: restart,
		Tick:    time.Second,
	})
}

func TestSkippedCasesExist(t *testing.T) {
	cases := drivertest.Cases()
	for _, list := range []map[string]string{sqstest.Unsupported, sqstest.UnsupportedByAWS, fauxqsFails, fifoFails} {
		for title := range list {
			if !slices.Contains(cases, title) {
				t.Errorf("there is no case %q to skip", title)
			}
		}
	}
}
