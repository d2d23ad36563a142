package store

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

func TestWhatIsCommittedIsThereAfterReopening(t *testing.T) {
	o := memOptions(vfs.NewMem())
	s := mustOpen(t, testDir, o)
	put(t, s, "a", "1")
	put(t, s, "b", "2")
	mustClose(t, s)
	s = mustOpen(t, testDir, o)
	defer mustClose(t, s)
	wantValue(t, s, "a", "1")
	wantValue(t, s, "b", "2")
	wantMissing(t, s, "c")
}
