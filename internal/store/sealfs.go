package store

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/atomicfs"

	"github.com/mailboxmq/mailbox/driver"
)

// sealFS adds checks to the engine's files that the engine does not make.
//
// A damaged MANIFEST looks to the engine like one that a crash has truncated: it forgets the
// tables named after the damage, and then deletes them. So after each sync of a MANIFEST,
// sealFS writes its length and hash to a side file, and verifySeal compares them before the
// engine reads the directory. A crash between the sync and the side file leaves a seal that
// covers a prefix, which is still valid.
//
// The same wrapper adds watermarks to logs (see watermark), and logs to the list of logs (see
// logList).
type sealFS struct {
	vfs.FS
	dir     string
	tracker *logTracker
	logs    *logList
	// forgetful leaves out the seals. Tests use it to prove that they detect damage.
	forgetful bool
}

func (s *sealFS) Unwrap() vfs.FS { return s.FS }

func (s *sealFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := s.FS.Create(name, category)
	if err != nil {
		return nil, err
	}
	return s.begin(name, f, 0)
}

func (s *sealFS) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if number, ok := s.ownLog(oldname); ok {
		if err := s.logs.remove(number); err != nil {
			return nil, err
		}
	}
	f, err := s.FS.ReuseForWrite(oldname, newname, category)
	if err != nil {
		return nil, err
	}
	stat, err := f.Stat()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return s.begin(newname, f, uint64(stat.Size()))
}

// ownLog returns the number of a log of this store. A log outside of the directory is a copy
// made by a backup: it has the number of a live log, but is a different file.
func (s *sealFS) ownLog(name string) (number uint64, ok bool) {
	number, ok = logNumber(s.PathBase(name))
	return number, ok && s.PathDir(name) == s.dir
}

// begin wraps a new file, which has this many bytes already. A log is added to the list, together with the final state of the one
// before it: the engine closes a log before it creates the next.
func (s *sealFS) begin(name string, f vfs.File, reserved uint64) (vfs.File, error) {
	number, ok := s.ownLog(name)
	if !ok {
		return s.wrap(name, f), nil
	}
	if err := s.logs.add(number, s.tracker.get()); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	s.tracker.start(number)
	return &logFile{File: f, tracker: s.tracker, at: watermark{log: number}, reserved: reserved}, nil
}

func (s *sealFS) wrap(name string, f vfs.File) vfs.File {
	if classOf(s.PathBase(name)) == classManifest && !s.forgetful {
		return &manifestFile{File: f, fs: s.FS, path: name, sum: sha256.New()}
	}
	return f
}

// Open opens a log that is being written only up to its stable part, and one that is complete
// up to its end: the file may be longer.
func (s *sealFS) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	f, err := s.FS.Open(name, opts...)
	if err != nil {
		return nil, err
	}
	if number, ok := s.ownLog(name); ok {
		if length, partly := s.tracker.stable(number); partly {
			return newStableLog(f, length), nil
		}
		if length := s.logs.length(number); length > 0 {
			return newStableLog(f, length), nil
		}
	}
	return f, nil
}

// Remove removes a log from the list first, and the seal together with its MANIFEST. If that
// fails or a crash comes in between, removeStaleSeals does it later.
func (s *sealFS) Remove(name string) error {
	if number, ok := s.ownLog(name); ok {
		if err := s.logs.remove(number); err != nil {
			return err
		}
	}
	err := s.FS.Remove(name)
	if err == nil && classOf(s.PathBase(name)) == classManifest {
		_ = s.FS.Remove(sealPath(s.FS, name))
	}
	return err
}

// manifestFile is a MANIFEST that is being written.
type manifestFile struct {
	vfs.File
	fs      vfs.FS
	path    string
	written uint64
	sum     hash.Hash
	crc     uint32 // to mend it
}

func (f *manifestFile) Write(p []byte) (int, error) {
	f.sum.Write(p) // before the file: vfs.File.Write may change p
	f.crc = crc32.Update(f.crc, castagnoli, p)
	f.written += uint64(len(p))
	return f.File.Write(p)
}

func (f *manifestFile) Sync() error {
	if err := f.File.Sync(); err != nil {
		return err
	}
	return f.seal()
}

func (f *manifestFile) SyncData() error {
	if err := f.File.SyncData(); err != nil {
		return err
	}
	return f.seal()
}

func (f *manifestFile) seal() error {
	body := fmt.Sprintf("file %s\nbytes %d\nsha256 %x\ncrc32c %08x\n", f.fs.PathBase(f.path), f.written, f.sum.Sum(nil), f.crc)
	return writeChecked(f.fs, sealPath(f.fs, f.path), body)
}

func sealPath(fs vfs.FS, manifest string) string {
	return fs.PathJoin(fs.PathDir(manifest), sealPrefix+fs.PathBase(manifest))
}

// verifySeal returns ErrIntegrity if the MANIFEST that the engine would read differs from the
// sealed content, up to the sealed length. It changes nothing but what m can mend.
func verifySeal(m *mender, dir string) error {
	fs := m.fs
	name, err := atomicfs.ReadMarker(fs, dir, manifestMarker)
	if err != nil {
		return fileError(driver.ErrIntegrity, "open", dir, "the names of its marker files are damaged; nothing was changed; restore from a backup", err)
	}
	if name == "" {
		return fileError(driver.ErrIntegrity, "open", dir, "the marker of the current MANIFEST is missing; nothing was changed; restore from a backup", nil)
	}
	manifest := fs.PathJoin(dir, name)
	seal, err := readSeal(fs, manifest)
	if err != nil {
		return err
	}
	err = seal.verify(fs, manifest)
	if errors.Is(err, driver.ErrIntegrity) {
		mended, mendErr := m.mend(checkedPrefix{manifest, manifestChunkHeader, uint64(seal.length), seal.crc})
		switch {
		case mended:
			err = seal.verify(fs, manifest)
		case mendErr != nil && !isNotExist(mendErr):
			err = ioError("open", manifest, mendErr)
		}
	}
	return err
}

// A manifestSeal is the content of the file beside a MANIFEST.
type manifestSeal struct {
	length int64
	sum    [sha256.Size]byte
	crc    uint32 // 0 in files of earlier versions
}

// verify compares a MANIFEST with its seal.
func (s *manifestSeal) verify(fs vfs.FS, manifest string) error {
	f, err := fs.Open(manifest)
	if err != nil {
		if isNotExist(err) {
			return fileError(driver.ErrIntegrity, "open", manifest, "the file is missing; nothing was changed; restore from a backup", err)
		}
		return ioError("open", manifest, err)
	}
	defer func() { _ = f.Close() }()
	h := sha256.New()
	n, err := io.CopyN(h, f, s.length)
	if err != nil && !errors.Is(err, io.EOF) {
		return ioError("open", manifest, err)
	}
	if n != s.length || [sha256.Size]byte(h.Sum(nil)) != s.sum {
		return fileError(driver.ErrIntegrity, "open", manifest,
			fmt.Sprintf("the file is not what was written: its first %d bytes do not match %s; nothing was changed; restore from a backup", s.length, fs.PathBase(sealPath(fs, manifest))), nil)
	}
	return nil
}

func readSeal(fs vfs.FS, manifest string) (*manifestSeal, error) {
	path := sealPath(fs, manifest)
	body, err := readChecked(fs, path)
	switch {
	case errors.Is(err, errDamaged):
		return nil, fileError(driver.ErrIntegrity, "open", path, "the seal is damaged; nothing was changed; restore from a backup", err)
	case isNotExist(err):
		return nil, fileError(driver.ErrIntegrity, "open", path, "the seal is missing; nothing was changed; restore from a backup", err)
	case err != nil:
		return nil, ioError("open", path, err)
	}
	values := fields(body)
	var seal manifestSeal
	seal.length, err = strconv.ParseInt(values["bytes"], 10, 64)
	if err == nil {
		var n int
		n, err = hex.Decode(seal.sum[:], []byte(values["sha256"]))
		if err == nil && n != len(seal.sum) {
			err = io.ErrUnexpectedEOF
		}
	}
	if crc, isThere := values["crc32c"]; isThere && err == nil {
		_, err = fmt.Sscanf(crc, "%x", &seal.crc)
	}
	if err != nil || values["file"] != fs.PathBase(manifest) {
		return nil, fileError(driver.ErrIntegrity, "open", path, "the seal makes no sense; nothing was changed; restore from a backup", err)
	}
	return &seal, nil
}

// removeStaleSeals removes the seals of removed manifests, and half-written files of a crash.
func removeStaleSeals(fs vfs.FS, dir string) error {
	names, err := fs.List(dir)
	if err != nil {
		return err
	}
	present := make(map[string]bool, len(names))
	for _, name := range names {
		present[name] = true
	}
	for _, name := range names {
		manifest, isSeal := strings.CutPrefix(name, sealPrefix+manifestPrefix)
		if !isSeal || present[manifestPrefix+manifest] {
			continue
		}
		if err := fs.Remove(fs.PathJoin(dir, name)); err != nil && !isNotExist(err) {
			return err
		}
	}
	return nil
}
