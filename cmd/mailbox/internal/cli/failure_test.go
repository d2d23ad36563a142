package cli_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/mailboxmq/mailbox/server"
)

// TestFullQueueNamesItsLimit: the advice depends on the limit, so the error names it, as
// the user spells it.
func TestFullQueueNamesItsLimit(t *testing.T) {
	for _, frames := range []bool{true, false} {
		d := start(t, inMemory())
		run := func(args ...string) result {
			if frames {
				return d.mailbox(t, args...)
			}
			return mailbox(t, d.environ("MAILBOX_OAP_ADDR="), args...)
		}
		d.must(t, "queues", "create", "many", "--max-messages", "1")
		d.must(t, "send", "many", "x")
		run("send", "many", "x").wantCode(t, 6, "the queue many accepts no more: queue is full (--max-messages 1)", "mailbox queues configure many --max-messages N")
		d.must(t, "queues", "create", "large", "--max-bytes", "200000")
		d.must(t, "send", "large", string(make([]byte, 100000)))
		d.must(t, "send", "large", string(make([]byte, 50000)))
		run("send", "large", string(make([]byte, 100000))).wantCode(t, 6, "queue is full (--max-bytes 200000)")
		d.must(t, "queues", "create", "taken", "--max-in-flight", "1")
		d.must(t, "send", "taken", "x")
		d.must(t, "send", "taken", "y")
		d.must(t, "recv", "taken")
		run("recv", "taken").wantCode(t, 6, "the queue taken: in-flight limit reached (--max-in-flight 1)", "ack messages in flight", "--max-in-flight N")
		d.must(t, "queues", "create", "dead", "--max-dead", "1")
		for range 2 {
			id := d.must(t, "send", "dead", "x")
			d.must(t, "recv", "dead")
			if r := run("nack", id, "--dead"); r.code != 0 {
				r.wantCode(t, 6, "the queue dead: the dead letters are full", "redrive or discard some", "--max-dead N")
			}
		}
	}
}

func TestFullDiskErrorHasUnits(t *testing.T) {
	d := start(t, server.Config{DiskReserve: 1 << 50})
	d.mailbox(t, "send", "a", "x").wantCode(t, 6, "the daemon's disk is full: ", " MiB free", "free some space on the volume")
}

func TestUsageErrorsNameFlagAndValue(t *testing.T) {
	d := start(t, onDisk())
	dir := t.TempDir()
	d.must(t, "send", "orders", "x")
	tar := filepath.Join(dir, "b.tar")
	d.must(t, "backup", tar)
	token := filepath.Join(dir, "send.token")
	d.must(t, "cap", "mint", "--op", "send", "--queue", "orders", "--expires", "1h", "--out", token)
	for _, try := range []struct {
		args  []string
		code  int
		words []string
	}{
		{[]string{"send", "orders", "x", "--key", ""}, 2, []string{"--key is empty"}},
		{[]string{"dump", tar, "--queue", "nosuch"}, 5, []string{"has no message of a queue nosuch", "it has messages of orders"}},
		{[]string{"restore", filepath.Join(dir, "none.tar"), filepath.Join(dir, "new")}, 2, []string{"none.tar cannot be read (no such file or directory)"}},
		{[]string{"backup", filepath.Join(dir, "missing") + "/"}, 2, []string{"the directory " + filepath.Join(dir, "missing") + " does not exist; create it first"}},
		{[]string{"backup", filepath.Join(dir, "missing", "b.tar")}, 2, []string{"does not exist; create it first"}},
		{[]string{"cap", "attenuate", token, "--op", "recv"}, 2, []string{"allow nothing", "no operation in common"}},
		{[]string{"cap", "attenuate", token, "--queue", "others"}, 2, []string{"allow nothing", "no queue in common"}},
		{[]string{"stats", "--addr", "ftp://x"}, 2, []string{`--addr: invalid value "ftp://x"; want host:port`}},
	} {
		d.mailbox(t, try.args...).wantCode(t, try.code, try.words...)
	}
	if _, err := os.Stat(filepath.Join(dir, "missing")); err == nil {
		t.Error("backup has made the directory")
	}
}
