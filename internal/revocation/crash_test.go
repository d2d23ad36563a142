package revocation

import (
	"errors"
	"io/fs"
	"maps"
	"slices"
	"testing"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/durable"
)

var (
	errPower = errors.New("the power is out")
	errDisk  = errors.New("the disk failed")
)

// A crashDisk is a directory in memory that tracks what would survive a power
// failure. Tests let the power, or one operation, fail at a given step.
type crashDisk struct {
	names   map[string]*crashFile // as programs see them
	durable map[string]*crashFile // as of the last sync of the directory
	steps   int                   // operations so far
	powerAt int                   // at this step the power fails, and all later ones fail
	failAt  int                   // this step fails, half done
}

type crashFile struct {
	disk    *crashDisk
	content []byte
	synced  []byte
}

func newCrashDisk() *crashDisk {
	return &crashDisk{names: make(map[string]*crashFile), durable: make(map[string]*crashFile), powerAt: -1, failAt: -1}
}

// put adds a durable file.
func (d *crashDisk) put(name string, content []byte) {
	f := &crashFile{disk: d, content: slices.Clone(content), synced: slices.Clone(content)}
	d.names[name], d.durable[name] = f, f
}

// step is called by each operation that changes something.
func (d *crashDisk) step() error {
	defer func() { d.steps++ }()
	switch {
	case d.powerAt >= 0 && d.steps >= d.powerAt:
		return errPower
	case d.steps == d.failAt:
		return errDisk
	}
	return nil
}

func (d *crashDisk) ReadFile(name string) ([]byte, error) {
	f, ok := d.names[name]
	if !ok {
		return nil, fs.ErrNotExist
	}
	return slices.Clone(f.content), nil
}

func (d *crashDisk) Create(name string) (durable.File, error) {
	if err := d.step(); err != nil {
		return nil, err
	}
	f := &crashFile{disk: d}
	d.names[name] = f
	return f, nil
}

func (d *crashDisk) AppendTo(name string) (durable.File, error) {
	if err := d.step(); err != nil {
		return nil, err
	}
	f, ok := d.names[name]
	if !ok {
		return nil, fs.ErrNotExist
	}
	return f, nil
}

func (d *crashDisk) Truncate(name string, size int64) error {
	if err := d.step(); err != nil {
		return err
	}
	f := d.names[name]
	f.content = f.content[:size]
	f.synced = slices.Clone(f.content)
	return nil
}

func (d *crashDisk) Rename(from, to string) error {
	if err := d.step(); err != nil {
		return err
	}
	d.names[to] = d.names[from]
	delete(d.names, from)
	return nil
}

func (d *crashDisk) Remove(name string) error {
	if _, ok := d.names[name]; !ok {
		return fs.ErrNotExist
	}
	if err := d.step(); err != nil {
		return err
	}
	delete(d.names, name)
	return nil
}

func (d *crashDisk) Sync() error {
	if err := d.step(); err != nil {
		return err
	}
	d.durable = maps.Clone(d.names)
	return nil
}

func (f *crashFile) Write(b []byte) (int, error) {
	err := f.disk.step()
	if errors.Is(err, errPower) {
		return 0, err
	}
	if err != nil {
		b = b[:len(b)/2]
	}
	f.content = append(f.content, b...)
	return len(b), err
}

func (f *crashFile) Sync() error {
	err := f.disk.step()
	if err == nil {
		f.synced = slices.Clone(f.content)
	}
	return err
}

func (f *crashFile) Close() error { return nil }

// survivals returns the possible states of the disk after a power failure: names as of
// the last sync or later, and of each file the synced part and any part of the
// rest, as data or as zeros.
func (d *crashDisk) survivals() []*crashDisk {
	var all []*crashDisk
	for _, names := range []map[string]*crashFile{d.durable, d.names} {
		for _, keep := range []func(unsynced []byte) []byte{
			func([]byte) []byte { return nil },
			func(unsynced []byte) []byte { return unsynced },
			func(unsynced []byte) []byte { return unsynced[:len(unsynced)/2] },
			func(unsynced []byte) []byte { return make([]byte, len(unsynced)) },
			func(unsynced []byte) []byte {
				return slices.Concat(unsynced[:len(unsynced)/3], make([]byte, len(unsynced)-len(unsynced)/3))
			},
		} {
			survived := newCrashDisk()
			for name, f := range names {
				survived.put(name, slices.Concat(f.synced, keep(f.content[len(f.synced):])))
			}
			all = append(all, survived)
		}
	}
	return all
}

// revokeAll opens the file and revokes tokens, some of them again and again so
// that the file is compacted. It returns what was confirmed.
func revokeAll(t testing.TB, d *crashDisk, n int) (confirmed []capability.TokenID) {
	f, err := openRevocations(d, "revoked")
	if err != nil {
		return nil
	}
	for i := range n {
		id := numbered(i % 10)
		if i%9 == 0 {
			id = numbered(100 + i)
		}
		if f.Revoke(t.Context(), Revocation{Token: id, At: revokedAt}) == nil {
			confirmed = append(confirmed, id)
		}
	}
	return confirmed
}

func wantRevoked(t testing.TB, what string, at int, d *crashDisk, tokens []capability.TokenID) {
	t.Helper()
	f, err := openRevocations(d, "revoked")
	if err != nil {
		t.Fatalf("%s at step %d: %v", what, at, err)
	}
	for _, id := range tokens {
		if _, revoked, _ := f.Revoked(t.Context(), id, ""); !revoked {
			t.Fatalf("%s at step %d: %s was confirmed as revoked, and is not", what, at, id)
		}
	}
}

// TestConfirmedRevocationsSurviveEveryCrash cuts the power before each
// operation on the disk, and checks every state that may be left.
func TestConfirmedRevocationsSurviveEveryCrash(t *testing.T) {
	const revoked, more = 85, 4
	whole := newCrashDisk()
	if confirmed := len(revokeAll(t, whole, revoked)); confirmed != revoked {
		t.Fatalf("%d of %d confirmed without a crash", confirmed, revoked)
	}
	disks := 0
	for at := range whole.steps + 1 {
		d := newCrashDisk()
		d.powerAt = at
		confirmed := revokeAll(t, d, revoked)
		for _, survived := range d.survivals() {
			disks++
			wantRevoked(t, "power cut", at, survived, confirmed)
			// The file can be used again.
			after := revokeAll(t, survived, more)
			if len(after) != more {
				t.Fatalf("power cut at step %d: afterwards %d of %d confirmed", at, len(after), more)
			}
			wantRevoked(t, "after the power cut", at, survived, append(after, confirmed...))
		}
	}
	t.Logf("%d moments, %d disks", whole.steps+1, disks)
}

// TestRevocationsSurviveOneDiskFailure lets each operation fail, half done. The
// caller gets an error, the token is refused nevertheless, and the next revocation
// makes everything durable.
func TestRevocationsSurviveOneDiskFailure(t *testing.T) {
	whole := newCrashDisk()
	revokeAll(t, whole, 85)
	told := 0
	for at := range whole.steps {
		d := newCrashDisk()
		d.failAt = at
		f, err := openRevocations(d, "revoked")
		if err != nil {
			wantCode(t, "open", err, driver.ErrUnavailable)
			if f, err = openRevocations(d, "revoked"); err != nil {
				t.Fatalf("opening again after a failure at step %d: %v", at, err)
			}
		}
		var all []capability.TokenID
		for i := range 85 {
			id := numbered(i % 10)
			if err := f.Revoke(t.Context(), Revocation{Token: id, At: revokedAt}); err != nil {
				told++
				if !errors.Is(err, driver.ErrUnavailable) || !errors.Is(err, errDisk) {
					t.Fatalf("step %d: %v", at, err)
				}
			}
			if _, revoked, _ := f.Revoked(t.Context(), id, ""); !revoked {
				t.Fatalf("step %d: not revoked after a failure", at)
			}
			all = append(all, id)
		}
		if err := f.Revoke(t.Context(), Revocation{Token: numbered(500), At: revokedAt}); err != nil && at < d.steps-3 {
			t.Fatalf("step %d: still failing: %v", at, err)
		}
		for _, survived := range d.survivals() {
			wantRevoked(t, "disk failure", at, survived, all)
		}
	}
	if told == 0 {
		t.Error("no failure was reported")
	}
}
