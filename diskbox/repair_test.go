package diskbox

import (
	"strings"
	"testing"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/store"
	"github.com/mailboxmq/mailbox/internal/testing/storetest"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
)

// TestRepairUndoesEveryMissingRecord removes and damages the records beside the messages, one
// after the other, and the messages themselves.
func TestRepairUndoesEveryMissingRecord(t *testing.T) {
	volume.InFull(t)
	disk := furnish(t)
	var keys [][]byte
	meddle(t, disk, func(s *store.Store) {
		it := s.Iterate(nil, nil)
		defer it.Close()
		for it.Next() {
			if strings.IndexByte("cmslwgdik", it.Key()[0]) >= 0 {
				keys = append(keys, append([]byte(nil), it.Key()...))
			}
		}
	})
	for _, key := range keys {
		for _, how := range []string{"removed", "damaged"} {
			if how == "damaged" && key[0] == groupKind {
				continue // has no content to damage
			}
			copied := storetest.DiskFrom(disk.Mem().CrashClone(everything()))
			meddle(t, copied, func(s *store.Store) { spoil(t, s, key, how) })
			lost := (key[0] == messageKind || key[0] == deadKind) && how == "damaged"
			expectRepaired(t, copied, key, how, lost)
		}
	}
}

func expectRepaired(t *testing.T, disk *storetest.Disk, key []byte, how string, lost bool) {
	t.Helper()
	done, err := Repair(t.Context(), "queues", offline(disk))
	if err != nil {
		t.Errorf("record %q was %s: %v", key, how, err)
		return
	}
	report, err := Check(t.Context(), "queues", offline(disk))
	if err != nil {
		t.Errorf("record %q was %s and repaired: %v", key, how, err)
		return
	}
	if lost != (done.Damaged == 1) || report.Damaged != done.Damaged {
		t.Errorf("record %q was %s: repair says %+v, check says %+v", key, how, done, report)
	}
	if !lost && key[0] != stateKind && len(report.Problems) > 0 { // a damaged state is a dead letter to be
		t.Errorf("record %q was %s: after %+v, check says %+v", key, how, done, report)
	}
	m := start(t, disk)
	defer closeIt(t, m)
	for _, name := range []string{"plain", "strict"} {
		q := openQueue(t, m, name)
		for range 2 { // everything that is ready can be received
			if _, err := q.Receive(t.Context(), driver.ReceiveRequest{Max: 100, Visibility: 1e9}); err != nil {
				t.Errorf("record %q was %s and repaired: %v", key, how, err)
			}
		}
	}
}

func TestRepairChangesNothingInASoundDirectory(t *testing.T) {
	disk := furnish(t)
	done, err := Repair(t.Context(), "queues", offline(disk))
	if err != nil || *done != (Repaired{}) {
		t.Errorf("repaired %+v, %v", done, err)
	}
	report, err := Check(t.Context(), "queues", offline(disk))
	if err != nil || len(report.Problems) > 0 || report.Messages != 36 {
		t.Errorf("check says %+v, %v", report, err)
	}
}
