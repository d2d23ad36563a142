package store

import (
	"errors"
	"hash/crc32"
	"log/slog"
	"math/rand/v2"
	"path"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/storetest"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
)

// TestFlippedBitInLogOrManifestIsRestored flips bits in the files that the engine reads at
// open. Every one is flipped back: all files are as they were.
func TestFlippedBitInLogOrManifestIsRestored(t *testing.T) {
	volume.InFull(t)
	r := newDamagedStore(t, func(*Options) {}, (*Store).Close)
	rng := rand.New(rand.NewPCG(1, 5))
	mended := 0
	for _, name := range storetest.Files(r.image) {
		if class := classOf(path.Base(name)); (class != classLog && class != classManifest) || flipClass(name) == "seal" {
			continue
		}
		whole := string(readFile(t, r.image, name))
		for range scaled(t, 20) {
			image := r.image.CrashClone(vfs.CrashCloneCfg{})
			offset, ok := storetest.Flip(image, name, rng)
			if !ok {
				continue
			}
			o := r.options(image)
			o.ReadOnly = true
			s, err := Open(t.Context(), testDir, o)
			current := err != nil // otherwise the engine does not read this part
			if current {
				wantError(t, err, driver.ErrIntegrity, path.Base(name), "one bit of byte", "nothing was changed")
				if !errors.Is(err, ErrOneBit) {
					t.Errorf("%v is not ErrOneBit", err)
				}
			} else {
				mustClose(t, s)
			}
			if got := string(readFile(t, image, name)); got == whole {
				t.Fatalf("a read-only store changed %s", name)
			}
			fs := &mender{fs: image, log: slog.New(slog.DiscardHandler)}
			logs, err := readLogList(image, path.Join(testDir, engineDir))
			if err != nil {
				t.Fatal(err)
			}
			id, _, err := readFormat(image, path.Join(testDir, engineDir))
			if err != nil {
				t.Fatal(err)
			}
			if err := verifySeal(fs, path.Join(testDir, engineDir)); err != nil {
				t.Fatalf("byte %d of %s: %v", offset, name, err)
			}
			if err := auditLogs(fs, path.Join(testDir, engineDir), id, logs); err != nil {
				t.Fatalf("byte %d of %s: %v", offset, name, err)
			}
			if current {
				mended++
				if got := string(readFile(t, image, name)); got != whole {
					t.Fatalf("byte %d of %s was not restored", offset, name)
				}
			}
			if result, err := r.outcome(t, image, nil); result != harmless || err != nil {
				t.Fatalf("byte %d of %s: %s, %v", offset, name, result, err)
			}
		}
	}
	if mended == 0 {
		t.Error("no flip hit what the engine reads")
	}
}

// TestTwoFlippedBitsAreRefused: the extent of other damage is unknown, and nothing is changed.
func TestTwoFlippedBitsAreRefused(t *testing.T) {
	volume.Repeats(t)
	r := newDamagedStore(t, func(*Options) {}, (*Store).Close)
	rng := rand.New(rand.NewPCG(1, 6))
	logs, err := readLogList(r.image, path.Join(testDir, engineDir))
	if err != nil {
		t.Fatal(err)
	}
	for number, known := range logs {
		name := path.Join(testDir, engineDir, logName(number))
		for range scaled(t, 20) {
			image := r.image.CrashClone(vfs.CrashCloneCfg{})
			first, _ := storetest.Flip(image, name, rng)
			second, ok := storetest.Flip(image, name, rng)
			if !ok || first == second || uint64(max(first, second)) >= known.length { // stale bytes are behind it
				continue
			}
			wantRefused(t, name, image, path.Base(name))
		}
	}
}

func TestCandidatesAreTheBitsThatExplainADifference(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 7))
	data := noise(rng, 5000)
	before := crc32.Checksum(data, castagnoli)
	for range 200 {
		at, bit := rng.IntN(len(data)), byte(1)<<rng.IntN(8)
		data[at] ^= bit
		found := 0
		for candidate, candidateBit := range candidates(data, crc32.Checksum(data, castagnoli)^before) {
			if found++; candidate != at || candidateBit != bit {
				t.Errorf("bit %d of byte %d, found bit %d of byte %d", bit, at, candidateBit, candidate)
			}
		}
		if data[at] ^= bit; found != 1 {
			t.Errorf("%d candidates for a bit of byte %d", found, at)
		}
	}
}
