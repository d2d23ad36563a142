package revocation

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/durable"
)

// File keeps revocations in a file, and answers from memory. Each
// revocation is on disk before Revoke returns, and survives a crash at any moment.
// See the package documentation for the format of the file.
//
// It is safe for concurrent use. Only one process at a time can have the file open.
type File struct {
	memory Memory
	disk   durable.Disk
	name   string
	unlock func() error

	mu      sync.Mutex   // held while writing; guards the fields below
	file    durable.File // nil if the last write failed, and after Close
	records int          // in the file, without its head
	closed  bool
}

// OpenFile opens the file at path, and creates it if it does not exist.
// It blocks on I/O; ctx is checked only before that.
//
// It removes an incomplete record that a crash left, which was never confirmed. Any
// other damage is ErrIntegrity: a file that lost revocations must not pass for an
// empty one. Other codes: ErrConflict (another process has it open),
// ErrUnavailable.
func OpenFile(ctx context.Context, path string) (*File, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	unlock, err := durable.Lock(path + ".lock")
	switch {
	case err != nil && durable.IsLocked(err):
		return nil, revocationsError(driver.ErrConflict, "open", "another process has the file open", err)
	case err != nil:
		return nil, revocationsError(driver.ErrUnavailable, "open", "", err)
	}
	f, err := openRevocations(durable.Directory(filepath.Dir(path)), filepath.Base(path))
	if err != nil {
		return nil, errors.Join(err, unlock())
	}
	f.unlock = unlock
	return f, nil
}

func openRevocations(d durable.Disk, name string) (*File, error) {
	f := &File{disk: d, name: name, unlock: func() error { return nil }}
	if err := durable.IgnoreMissing(d.Remove(name + durable.TemporarySuffix)); err != nil {
		return nil, revocationsError(driver.ErrUnavailable, "open", "", err)
	}
	content, err := d.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return f.rewritten()
	}
	if err != nil {
		return nil, revocationsError(driver.ErrUnavailable, "open", "", err)
	}
	whole, err := f.load(content)
	if err != nil {
		return nil, err
	}
	if whole < len(content) {
		if err := d.Truncate(name, int64(whole)); err != nil {
			return nil, revocationsError(driver.ErrUnavailable, "open", "", err)
		}
	}
	f.memory.forgetLocked(time.Now())
	if f.wastefulLocked() {
		return f.rewritten()
	}
	if f.file, err = d.AppendTo(name); err != nil {
		return nil, revocationsError(driver.ErrUnavailable, "open", "", err)
	}
	return f, nil
}

// rewritten returns f with a new file.
func (f *File) rewritten() (*File, error) {
	if err := f.rewriteLocked(); err != nil {
		return nil, err
	}
	return f, nil
}

// load reads the file into memory and returns the size of its complete records.
func (f *File) load(content []byte) (whole int, err error) {
	for at := 0; at < len(content); at += recordBytes {
		rest := content[at:]
		if len(rest) < recordBytes && at > 0 {
			return at, nil // a crash left an incomplete record
		}
		r, ok := parseRecord(rest, at == 0)
		if !ok {
			if at > 0 && neverWritten(rest) {
				return at, nil
			}
			return 0, revocationsError(driver.ErrIntegrity, "open", fmt.Sprintf("record %d is damaged; restore the file, or remove it and retire all keys", at/recordBytes), nil)
		}
		if at > 0 {
			f.memory.addLocked(r)
			f.records++
		}
	}
	if len(content) == 0 {
		return 0, revocationsError(driver.ErrIntegrity, "open", "the file is empty and has lost its header; restore it, or remove it and retire all keys", nil)
	}
	return len(content), nil
}

// neverWritten reports whether rest consists of zeros from somewhere in its first
// record on: the file grew, and the power failed before the data was written.
// Records do not contain zeros and end in a newline, so a flipped bit does not look
// like that.
func neverWritten(rest []byte) bool {
	written := bytes.TrimRight(rest, "\x00")
	return len(written) < len(rest) && len(written) < recordBytes && bytes.IndexByte(written, 0) < 0
}

// Revoke adds a revocation and makes it durable before it returns. It blocks on I/O;
// ctx is checked only before that. Repeating it is safe. Codes: ErrInvalid, ErrFull
// (Max), ErrClosed, and ErrUnavailable: then the token is revoked in this
// process, but perhaps not after a restart.
func (f *File) Revoke(ctx context.Context, r Revocation) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return revocationsError(driver.ErrClosed, "revoke", "", nil)
	}
	if err := f.memory.Revoke(ctx, r); err != nil {
		return err
	}
	if f.file == nil || f.wastefulLocked() {
		return f.rewriteLocked()
	}
	if err := f.appendLocked(&r); err != nil {
		// The content of the file is not known any more. The next revocation
		// writes a new file.
		_ = f.file.Close()
		f.file = nil
		return revocationsError(driver.ErrUnavailable, "revoke", notDurable, err)
	}
	f.records++
	return nil
}

func (f *File) appendLocked(r *Revocation) error {
	if _, err := f.file.Write(appendRecord(nil, r)); err != nil {
		return err
	}
	return f.file.Sync()
}

// notDurable is the detail of an error of Revoke after which the revocation holds in
// memory.
const notDurable = "not written to disk; revoked only until the next restart"

// wastefulLocked reports whether most records of the file are repeated or obsolete.
func (f *File) wastefulLocked() bool {
	const worthIt = 64
	return f.records > worthIt && f.records > 2*f.memory.Len()
}

// Compact rewrites the file without repeated and obsolete records. It happens
// automatically when these are most of the file. It blocks on I/O. Codes:
// ErrUnavailable, ErrClosed.
func (f *File) Compact(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return revocationsError(driver.ErrClosed, "compact", "", nil)
	}
	f.memory.mu.Lock()
	f.memory.forgetLocked(time.Now())
	f.memory.mu.Unlock()
	return f.rewriteLocked()
}

// ForgetBefore drops, now and from now on, revocations that are obsolete because all
// accepted keys were made later: since is [keyring.Ring.AcceptsSince], and the zero time
// means that this is not known. It rewrites the file when most of it is obsolete. It
// blocks on I/O. Codes: ErrUnavailable, ErrClosed.
func (f *File) ForgetBefore(since time.Time) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return revocationsError(driver.ErrClosed, "compact", "", nil)
	}
	f.memory.ForgetBefore(since)
	if f.file != nil && !f.wastefulLocked() {
		return nil
	}
	return f.rewriteLocked()
}

// rewriteLocked writes a new file with the revocations in memory.
func (f *File) rewriteLocked() error {
	if f.file != nil {
		_ = f.file.Close() // memory has all its records
		f.file = nil
	}
	content := Encode(f.memory.All())
	err := durable.Replace(f.disk, f.name, content)
	if err == nil {
		f.file, err = f.disk.AppendTo(f.name)
	}
	if err != nil {
		return revocationsError(driver.ErrUnavailable, "revoke", notDurable, err)
	}
	f.records = len(content)/recordBytes - 1
	return nil
}

// ReadFile returns the revocations in a file, which another process may
// have open. It does not change the file, and ignores an incomplete record that a
// crash left. Codes: ErrNotFound, ErrIntegrity, ErrUnavailable.
func ReadFile(path string) ([]Revocation, error) {
	content, err := durable.Directory(filepath.Dir(path)).ReadFile(filepath.Base(path))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, revocationsError(driver.ErrNotFound, "read", "", err)
	}
	if err != nil {
		return nil, revocationsError(driver.ErrUnavailable, "read", "", err)
	}
	var f File
	if _, err := f.load(content); err != nil {
		return nil, err
	}
	return slices.Collect(f.memory.All()), nil
}

// Encode returns the content of a revocation file, for a backup.
func Encode(all iter.Seq[Revocation]) []byte {
	content := appendHead(nil)
	for r := range all {
		content = appendRecord(content, &r)
	}
	return content
}

// Revoked implements [verify.Revocations]. It does not block, and the error is always
// nil.
func (f *File) Revoked(ctx context.Context, token capability.TokenID, tenant string) (since time.Time, revoked bool, err error) {
	return f.memory.Revoked(ctx, token, tenant)
}

// RevokesNarrowed reports whether a narrowed token is revoked.
func (f *File) RevokesNarrowed() bool { return f.memory.RevokesNarrowed() }

// Generation implements [verify.Revocations].
func (f *File) Generation() uint64 { return f.memory.Generation() }

// All yields the revocations as they were when it was called: those of tokens by
// id, then those of tenants by name.
func (f *File) All() iter.Seq[Revocation] { return f.memory.All() }

// Len returns the number of revocations, for a metric beside Max.
func (f *File) Len() int { return f.memory.Len() }

// Close closes the file. Revoked continues to answer from memory. Closing again has
// no effect.
func (f *File) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil
	}
	f.closed = true
	var err error
	if f.file != nil {
		err = f.file.Close()
		f.file = nil
	}
	if err = errors.Join(err, f.unlock()); err != nil {
		return revocationsError(driver.ErrUnavailable, "close", "", err)
	}
	return nil
}

func revocationsError(code driver.Code, op, detail string, cause error) error {
	return &driver.Error{Code: code, Op: op, Field: "revocations", Detail: detail, Err: cause}
}
