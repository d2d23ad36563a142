package diskbox

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

func TestBackupFileListsAndRestoresEveryState(t *testing.T) {
	dir := t.TempDir()
	b, err := Open(t.Context(), filepath.Join(dir, "queues"), nil)
	if err != nil {
		t.Fatal(err)
	}
	q := openQueue(t, b, "jobs")
	send(t, q, driver.Outgoing{Body: []byte("leased")})
	send(t, q, driver.Outgoing{Body: []byte("bad")})
	got := receive(t, q, 2)
	request := driver.DeadLetterRequest{Receipt: got[1].Receipt, Reason: driver.ReasonFatal, Error: "boom"}
	if err := q.DeadLetter(t.Context(), []driver.DeadLetterRequest{request}); err != nil {
		t.Fatal(err)
	}
	send(t, q, driver.Outgoing{Body: []byte("waiting"), Attributes: map[string]string{"colour": "blue"}})
	send(t, q, driver.Outgoing{Body: []byte("later"), Delay: 10 * time.Minute})
	var out bytes.Buffer
	info, err := b.WriteBackup(t.Context(), &out, nil)
	if err != nil || info.Files == 0 || info.Bytes == 0 || info.MadeAt.IsZero() {
		t.Fatalf("%+v, %v", info, err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "backup.tar")
	if err := os.WriteFile(file, out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	restored := filepath.Join(dir, "restored")
	if err := Restore(t.Context(), file, restored, nil); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{file, restored, filepath.Join(dir, "queues")} {
		report, err := Check(t.Context(), path, nil)
		if err != nil || report.Messages != 3 || report.Dead != 1 || len(report.Problems) > 0 {
			t.Errorf("%s: %+v, %v", path, report, err)
		}
		states := make(map[string]string)
		err = List(t.Context(), path, nil, func(l *Listed) error {
			states[string(l.Body)] = l.State
			if (l.State == stateDelayed || l.State == stateInFlight) != (l.DueIn > 0) || l.Queue != "jobs" || l.ID == "" {
				t.Errorf("listed %+v", l)
			}
			if l.State == stateDead && (l.Reason != driver.ReasonFatal || l.LastError != "boom") {
				t.Errorf("listed %+v", l)
			}
			return nil
		})
		want := map[string]string{"leased": stateInFlight, "bad": stateDead, "waiting": stateReady, "later": stateDelayed}
		for body, state := range want {
			if states[body] != state || len(states) != len(want) || err != nil {
				t.Errorf("%s: %v, %v", path, states, err)
			}
		}
	}
}
