package cli_test

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/diskbox"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/pgtest"
	"github.com/mailboxmq/mailbox/internal/testing/redistest"
	"github.com/mailboxmq/mailbox/pgbox"
	"github.com/mailboxmq/mailbox/server"
)

// withDirectory calls do with a queue in a directory.
func withDirectory(t *testing.T, dir string, do func(driver.Queue)) {
	t.Helper()
	backend, err := diskbox.Open(t.Context(), dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	queue, err := backend.OpenQueue(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	do(queue)
	if err := backend.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestCopyGoesRoundBackends copies messages from a directory through Redis, PostgreSQL and a
// daemon to another directory.
func TestCopyGoesRoundBackends(t *testing.T) {
	postgres := pgtest.Start(t, "fsync=off")
	if err := pgbox.Migrate(t.Context(), postgres.Pool(t), ""); err != nil {
		t.Fatal(err)
	}
	inPostgres, err := url.Parse(postgres.URL())
	if err != nil {
		t.Fatal(err)
	}
	inPostgres.Path += "/orders"
	d := start(t, inMemory())
	first, last := t.TempDir(), t.TempDir()
	due := time.Now().Add(24 * time.Hour).Truncate(time.Second)
	withDirectory(t, first, func(q driver.Queue) {
		if _, err := q.Send(t.Context(), []driver.Outgoing{
			{Body: []byte("a"), Attributes: map[string]string{"k": "v"}}, {Body: []byte("b"), Priority: 3}, {Body: []byte("later"), DeliverAt: due},
		}); err != nil {
			t.Fatal(err)
		}
	})
	places := []string{
		"disk://" + first + "?queue=orders", "redis://" + redistest.Standalone(t).Addr() + "/orders", inPostgres.String(), "orders",
		"disk://" + last + "?queue=orders",
	}
	for i := range places[1:] {
		r := mailbox(t, d.environ(), "copy", places[i], places[i+1])
		if r.code != 0 || r.stdout != "moved 3 messages, 1 of them before they were due\n" {
			t.Fatalf("%s to %s: %+v", places[i], places[i+1], r)
		}
	}
	r := mailbox(t, d.environ(), "copy", "--json", "orders", places[1])
	if r.code != 0 || r.stdout != `{"moved":0,"moved_before_due":0,"left_ready":0,"left_delayed":0,"left_in_flight":0,"left_dead":0}`+"\n" {
		t.Errorf("copy of nothing: %+v", r)
	}
	withDirectory(t, last, func(q driver.Queue) {
		var got []string
		for m, err := range q.Peek(t.Context(), driver.Query{}) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, string(m.Body))
			switch string(m.Body) {
			case "a":
				if m.Attributes["k"] != "v" {
					t.Errorf("got %+v", m)
				}
			case "b":
				if m.Priority != 3 {
					t.Errorf("got %+v", m)
				}
			case "later":
				if !m.DueAt.Equal(due) {
					t.Errorf("due at %v, want %v", m.DueAt, due)
				}
			}
		}
		if strings.Join(got, " ") != "b a later" {
			t.Errorf("got %q", got)
		}
	})
}

func TestCopyFollowsUntilInterrupted(t *testing.T) {
	d := start(t, inMemory())
	if r := mailbox(t, d.environ(), "send", "orders", "a"); r.code != 0 {
		t.Fatal(r)
	}
	running := begin(t, d.environ(), strings.NewReader(""), "copy", "--follow", "orders", "others")
	for _, want := range []string{"a", "b"} {
		if r := mailbox(t, d.environ(), "recv", "others", "--follow", "--max", "1", "--ack", "--body", "--wait", "20s"); r.code != 0 || r.stdout != want+"\n" {
			t.Fatalf("got %+v", r)
		}
		if r := mailbox(t, d.environ(), "send", "orders", "b"); r.code != 0 {
			t.Fatal(r)
		}
	}
	running.interrupt()
	if code := <-running.code; code != 0 || !strings.HasPrefix(running.stdout.String(), "moved ") {
		t.Errorf("exit code %d: %s%s", code, running.stdout, running.stderr)
	}
}

// TestQueueOfDaemonIsCopiedThroughIt: its messages are sealed, on disk and in Redis, which keeps no seals.
func TestQueueOfDaemonIsCopiedThroughIt(t *testing.T) {
	redis := redistest.Standalone(t)
	onRedis := start(t, server.Config{Backend: "redis://" + redis.Addr()})
	disk := start(t, onDisk())
	for _, d := range []*daemon{onRedis, disk} {
		if r := mailbox(t, d.environ(), "send", "orders", "a"); r.code != 0 {
			t.Fatal(r)
		}
	}
	disk.stop()
	for _, from := range []string{"redis://" + redis.Addr() + "/orders", "disk://" + disk.dir + "/queues?queue=orders"} {
		r := mailbox(t, onRedis.environ(), "copy", from, "disk://"+t.TempDir()+"?queue=orders")
		if r.code == 0 || !strings.Contains(r.stderr, "copy them through the daemon") || r.stdout != "moved 0 messages; left: 1 ready\n" {
			t.Errorf("%s: got %+v", from, r)
		}
	}
	if r := mailbox(t, onRedis.environ(), "copy", "orders", "disk://"+t.TempDir()+"?queue=orders"); r.code != 0 || r.stdout != "moved 1 message\n" {
		t.Errorf("through the daemon: got %+v", r)
	}
}

func TestCopySaysWhatIsWrong(t *testing.T) {
	d := start(t, inMemory())
	for _, test := range []struct {
		from, to, want string
		code           int
	}{
		{"orders", "orders", "FROM and TO are the same queue", 2},
		{"orders", "ftp://shop:secret@127.0.0.1/orders", `TO: unknown scheme "ftp"; want disk, `, 2},
		{"redis://shop:sec%zzret@127.0.0.1/orders", "orders", "FROM: the URL of redis cannot be read", 2},
		{"a\x00", "orders", "FROM: invalid name \"a\\x00\": it ", 2},
		{"missing", "orders", "there is no queue missing", 5},
	} {
		r := mailbox(t, d.environ(), "copy", test.from, test.to)
		if r.code != test.code || !strings.Contains(r.stderr, test.want) || strings.Contains(r.stderr, "secret") {
			t.Errorf("%q to %q: got %+v, want %q", test.from, test.to, r, test.want)
		}
	}
}
