package store

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/mailboxmq/mailbox/driver"
)

// An Archive is a backup that WriteArchive has written to a file. It is complete; Verify
// reports whether it is undamaged.
type Archive struct {
	ArchiveInfo
	path string
	file *os.File
	head []byte // the first entry
	list []listedFile
	// at has the content of each entry by its name.
	at map[string]*io.SectionReader
}

// maxArchiveList bounds the first and the last entry of an archive.
const maxArchiveList = 256 << 20

// OpenArchive opens an archive and reads its list. Codes: ErrNotFound, ErrInvalid (not an
// archive), ErrIntegrity (incomplete, or its list does not match), ErrUnsupported (a newer
// format), ErrUnavailable.
func OpenArchive(path string) (*Archive, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, ioError("open", path, err)
	}
	a := &Archive{path: path, file: f, at: make(map[string]*io.SectionReader)}
	if err := a.index(); err != nil {
		_ = f.Close()
		return nil, err
	}
	return a, nil
}

// Close closes the file.
func (a *Archive) Close() error { return a.file.Close() }

// index finds the entries, and compares them with the list at the end.
func (a *Archive) index() error {
	r := tar.NewReader(a.file)
	first, ended := true, false
	for {
		header, err := r.Next()
		switch {
		case errors.Is(err, io.EOF) && ended:
			return a.compare()
		case err != nil && first:
			return archiveError(driver.ErrInvalid, a.path, "is not a backup: want a file that mailbox backup has written, or a directory")
		case err != nil:
			return archiveError(driver.ErrIntegrity, a.path, "the backup is not complete: its end is missing; it was interrupted while it was written, so take another")
		}
		switch {
		case first && header.Name != archiveHead:
			return archiveError(driver.ErrInvalid, a.path, "is not a backup: it begins with %q; want a file that mailbox backup has written, or a directory", header.Name)
		case first:
			if a.head, err = readObject(r, &a.ArchiveInfo); err != nil {
				return archiveError(driver.ErrIntegrity, a.path, "the backup is damaged at its beginning")
			}
			if a.Format != archiveFormat {
				return archiveError(driver.ErrUnsupported, a.path, "the backup has format %d, and this version reads %d; use a newer one", a.Format, archiveFormat)
			}
		case header.Name == archiveEnd:
			var list archiveList
			if _, err := readObject(r, &list); err != nil {
				return archiveError(driver.ErrIntegrity, a.path, "the backup is not complete: its end is missing or damaged")
			}
			a.list, ended = list.Files, true
		}
		first = false
		start, err := a.file.Seek(0, io.SeekCurrent)
		if err != nil {
			return ioError("open", a.path, err)
		}
		if header.Name != archiveEnd && header.Name != archiveHead {
			a.at[header.Name] = io.NewSectionReader(a.file, start, header.Size)
		}
	}
}

func readObject(r io.Reader, value any) (text []byte, err error) {
	if text, err = io.ReadAll(io.LimitReader(r, maxArchiveList)); err != nil {
		return nil, err
	}
	return text, json.Unmarshal(text, value)
}

// compare checks that the list names every entry once, with its length, and the first one with
// its checksum.
func (a *Archive) compare() error {
	sum := sha256.Sum256(a.head)
	head := listedFile{archiveHead, int64(len(a.head)), hex.EncodeToString(sum[:])}
	if len(a.list) == 0 || a.list[0] != head {
		return archiveError(driver.ErrIntegrity, a.path, "the backup is damaged at its beginning")
	}
	found, bytes := 0, int64(0)
	for _, f := range a.list[1:] {
		entry := a.at[f.Name]
		if entry == nil || entry.Size() != f.Size || !filepath.IsLocal(f.Name) {
			return archiveError(driver.ErrIntegrity, a.path, "the backup is damaged: %q is not as its list says", f.Name)
		}
		found++
		bytes += f.Size
	}
	if found != len(a.at) || found != a.Files || bytes != a.Bytes {
		return archiveError(driver.ErrIntegrity, a.path, "the backup is damaged: it holds %d files, and its list says %d", len(a.at), a.Files)
	}
	return nil
}

// Read returns the content of an entry that is not part of the store. ok is false if
// there is none.
func (a *Archive) Read(name string) (content []byte, ok bool, err error) {
	entry := a.at[name]
	if entry == nil {
		return nil, false, nil
	}
	content = make([]byte, entry.Size())
	if _, err := entry.ReadAt(content, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, true, ioError("open", a.path, err)
	}
	return content, true, nil
}

// Verify reads the whole archive and compares it with the checksums in its list. It calls read,
// which may be nil, with the number of bytes after each piece. Codes: ErrIntegrity,
// ErrUnavailable.
func (a *Archive) Verify(ctx context.Context, read func(n int64)) error {
	return a.each(ctx, read, func(listedFile) (io.WriteCloser, error) { return nil, nil })
}

// Extract writes the entries to dir, which must exist, durably, and verifies them on the way.
// Codes: those of Verify, ErrFull.
func (a *Archive) Extract(ctx context.Context, dir string, want func(name string) bool, read func(n int64)) error {
	err := a.each(ctx, read, func(f listedFile) (io.WriteCloser, error) {
		if !want(f.Name) {
			return nil, nil
		}
		to := filepath.Join(dir, filepath.FromSlash(f.Name))
		if err := os.MkdirAll(filepath.Dir(to), privateDir); err != nil {
			return nil, ioError("restore", to, err)
		}
		file, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, privateFile)
		return syncedFile{file}, ioError("restore", to, err)
	})
	if err != nil {
		return err
	}
	return filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			err = syncDir(localFS, path)
		}
		return ioError("restore", path, err)
	})
}

// A syncedFile syncs when it is closed.
type syncedFile struct{ *os.File }

func (f syncedFile) Close() error {
	return errors.Join(f.Sync(), f.File.Close())
}

// each verifies the entries in order, and copies each to the writer that open returns.
func (a *Archive) each(ctx context.Context, read func(n int64), open func(f listedFile) (io.WriteCloser, error)) error {
	if read == nil {
		read = func(int64) {}
	}
	buf := make([]byte, 256<<10)
	for _, f := range a.list[1:] { // the first was verified when the archive was opened
		to, err := open(f)
		if err != nil {
			return err
		}
		err = a.copyEntry(ctx, f, to, buf, read)
		if to != nil {
			err = errors.Join(err, ioError("restore", f.Name, to.Close()))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (a *Archive) copyEntry(ctx context.Context, f listedFile, to io.Writer, buf []byte, read func(n int64)) error {
	sum := sha256.New()
	entry := a.at[f.Name]
	for at := int64(0); at < f.Size; {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := entry.ReadAt(buf[:min(f.Size-at, int64(len(buf)))], at)
		if err != nil && !errors.Is(err, io.EOF) || n == 0 {
			return ioError("open", a.path, err)
		}
		_, _ = sum.Write(buf[:n]) // never fails
		if to != nil {
			if _, err := to.Write(buf[:n]); err != nil {
				return ioError("restore", f.Name, err)
			}
		}
		at += int64(n)
		read(int64(n))
	}
	if hex.EncodeToString(sum.Sum(nil)) != f.SHA256 {
		return archiveError(driver.ErrIntegrity, a.path, "the backup is damaged: %q does not match its checksum; use another backup", f.Name)
	}
	return nil
}

// OpenArchived opens the store in an archive for reading. It is closed with the archive.
// Codes: those of OpenArchive and Open.
func OpenArchived(ctx context.Context, path string, options *Options) (*Store, error) {
	a, err := OpenArchive(path)
	if err != nil {
		return nil, err
	}
	o := *options
	o.FS, o.ReadOnly = a.FS(), true
	s, err := Open(ctx, "/"+ArchivedStore, &o)
	if err != nil {
		return nil, errors.Join(err, a.Close())
	}
	s.archive = a
	return s, nil
}

// VerifyArchive verifies the archive of the store, if it is in one.
func (s *Store) VerifyArchive(ctx context.Context) error {
	if s.archive == nil {
		return nil
	}
	return s.archive.Verify(ctx, nil)
}

// ExtractStore extracts the store of the archive to dir, which must not exist or be empty. It
// appears with one rename when all of it is durable. Codes: those of Verify, ErrConflict,
// ErrInvalid, ErrFull.
func (a *Archive) ExtractStore(ctx context.Context, dir string) error {
	dir = canonical(dir)
	fresh, err := prepareDir(localFS, dir, false)
	if err != nil {
		return err
	}
	if !fresh {
		return fileError(driver.ErrConflict, "restore", dir, "holds a store already; choose another directory", nil)
	}
	creating := filepath.Join(dir, creatingDir)
	if err := os.RemoveAll(creating); err != nil {
		return ioError("restore", creating, err)
	}
	if err := os.Mkdir(creating, privateDir); err != nil {
		return ioError("restore", creating, err)
	}
	inStore := func(name string) bool { return strings.HasPrefix(name, ArchivedStore+"/") }
	err = a.Extract(ctx, creating, inStore, nil)
	if err == nil {
		from := filepath.Join(creating, ArchivedStore, engineDir)
		err = ioError("restore", dir, os.Rename(from, filepath.Join(dir, engineDir)))
	}
	if removed := os.RemoveAll(creating); err == nil {
		err = ioError("restore", creating, removed)
	}
	if err == nil {
		err = ioError("restore", dir, settleNames(localFS, dir))
	}
	return err
}

// FS returns the archive as a read-only file system. The store is in ArchivedStore.
func (a *Archive) FS() vfs.FS { return &archiveFS{FS: vfs.NewMem(), archive: a} }

// archiveFS is the file system of an archive. The embedded memory file system stays empty; it
// provides the path functions.
type archiveFS struct {
	vfs.FS
	archive *Archive
}

func (fs *archiveFS) key(name string) string { return strings.TrimPrefix(path.Clean("/"+name), "/") }

func (fs *archiveFS) isDir(key string) bool {
	for name := range fs.archive.at {
		if key == "" || strings.HasPrefix(name, key+"/") {
			return true
		}
	}
	return false
}

func (fs *archiveFS) Open(name string, _ ...vfs.OpenOption) (vfs.File, error) {
	key := fs.key(name)
	entry := fs.archive.at[key]
	if entry == nil && !fs.isDir(key) {
		return nil, &os.PathError{Op: "open", Path: name, Err: os.ErrNotExist}
	}
	info, err := fs.Stat(name)
	if err != nil {
		return nil, err
	}
	if entry == nil {
		entry = io.NewSectionReader(fs.archive.file, 0, 0)
	}
	return &archivedEntry{SectionReader: io.NewSectionReader(entry, 0, entry.Size()), info: info}, nil
}

func (fs *archiveFS) OpenDir(name string) (vfs.File, error) { return fs.Open(name) }

func (fs *archiveFS) List(dir string) ([]string, error) {
	key := fs.key(dir)
	if !fs.isDir(key) {
		return nil, &os.PathError{Op: "list", Path: dir, Err: os.ErrNotExist}
	}
	seen := make(map[string]bool)
	var names []string
	for name := range fs.archive.at {
		rest, inside := name, true
		if key != "" {
			rest, inside = strings.CutPrefix(name, key+"/")
		}
		if first, _, _ := strings.Cut(rest, "/"); inside && !seen[first] {
			seen[first] = true
			names = append(names, first)
		}
	}
	return names, nil
}

func (fs *archiveFS) Stat(name string) (vfs.FileInfo, error) {
	key := fs.key(name)
	entry := fs.archive.at[key]
	switch {
	case entry != nil:
		return archivedInfo{path.Base(key), entry.Size(), privateFile, fs.archive.MadeAt}, nil
	case fs.isDir(key):
		return archivedInfo{path.Base(key), 0, os.ModeDir | privateDir, fs.archive.MadeAt}, nil
	}
	return nil, &os.PathError{Op: "stat", Path: name, Err: os.ErrNotExist}
}

// Lock does nothing: an archive does not change.
func (fs *archiveFS) Lock(string) (io.Closer, error) { return io.NopCloser(nil), nil }

func (fs *archiveFS) GetDiskUsage(string) (vfs.DiskUsage, error) {
	return vfs.DiskUsage{}, vfs.ErrUnsupported
}

type archivedInfo struct {
	name string
	size int64
	mode os.FileMode
	at   time.Time
}

func (i archivedInfo) Name() string           { return i.name }
func (i archivedInfo) Size() int64            { return i.size }
func (i archivedInfo) Mode() os.FileMode      { return i.mode }
func (i archivedInfo) ModTime() time.Time     { return i.at }
func (i archivedInfo) IsDir() bool            { return i.mode.IsDir() }
func (i archivedInfo) Sys() any               { return nil }
func (i archivedInfo) DeviceID() vfs.DeviceID { return vfs.DeviceID{} }

// An archivedEntry is an open file of an archive.
type archivedEntry struct {
	*io.SectionReader
	info vfs.FileInfo
}

var errReadOnly = &os.PathError{Op: "write", Path: "archive", Err: os.ErrPermission}

func (e *archivedEntry) Close() error                            { return nil }
func (e *archivedEntry) Stat() (vfs.FileInfo, error)             { return e.info, nil }
func (e *archivedEntry) Write([]byte) (int, error)               { return 0, errReadOnly }
func (e *archivedEntry) WriteAt([]byte, int64) (int, error)      { return 0, errReadOnly }
func (e *archivedEntry) Preallocate(int64, int64) error          { return errReadOnly }
func (e *archivedEntry) Sync() error                             { return nil }
func (e *archivedEntry) SyncData() error                         { return nil }
func (e *archivedEntry) SyncTo(int64) (fullSync bool, err error) { return false, nil }
func (e *archivedEntry) Prefetch(int64, int64) error             { return nil }
func (e *archivedEntry) Fd() uintptr                             { return vfs.InvalidFd }
