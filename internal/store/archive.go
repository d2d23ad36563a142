package store

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"path"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/mailboxmq/mailbox/driver"
)

// An archive is a backup in one stream: a tar file whose first entry identifies it, and whose
// last entry lists all others with their lengths and SHA-256. An archive without its last entry
// is incomplete and is refused.
//
//	MAILBOX_BACKUP       ArchiveInfo in JSON
//	queues/db/…          the engine's files
//	…                    what the caller keeps beside the store
//	MAILBOX_BACKUP_END   the list in JSON
const (
	archiveHead   = "MAILBOX_BACKUP"
	archiveEnd    = "MAILBOX_BACKUP_END"
	archiveFormat = 1
	// ArchivedStore is the directory of the store in an archive.
	ArchivedStore = "queues"
)

// ArchiveInfo describes an archive.
type ArchiveInfo struct {
	Format int `json:"format"`
	// MadeAt is when the copy was complete: later operations are not in it.
	MadeAt time.Time `json:"made_at"`
	// Files and Bytes count all entries but the first and the last.
	Files int   `json:"files"`
	Bytes int64 `json:"bytes"`
}

// An ArchivedFile is an entry of an archive that is not part of the store.
type ArchivedFile struct {
	Name    string
	Content []byte
}

// listedFile is an element of the list at the end.
type listedFile struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

type archiveList struct {
	Files []listedFile `json:"files"`
}

// WriteArchive writes a backup of the store to w while the store stays in use. The backup has
// the same content as one by Backup. beside is called when the copy is complete, and returns
// further files for the archive; it may be nil.
//
// The copy is made in the store's directory first, where tables are linked instead of copied.
// It takes the space of the logs, and keeps deleted tables until it ends. One archive is
// written at a time. When ctx ends or w fails, WriteArchive stops and returns the error, and w
// has no complete archive. Codes: ErrConflict (another archive is being written), ErrFull,
// ErrUnavailable, ErrClosed.
func (s *Store) WriteArchive(ctx context.Context, w io.Writer, beside func() ([]ArchivedFile, error)) (ArchiveInfo, error) {
	if err := s.enter(); err != nil {
		return ArchiveInfo{}, err
	}
	defer s.leave()
	if s.options.ReadOnly {
		return ArchiveInfo{}, &driver.Error{Code: driver.ErrUnsupported, Op: "backup", Detail: "the store is open for reading only"}
	}
	if !s.backups.TryLock() {
		return ArchiveInfo{}, &driver.Error{Code: driver.ErrConflict, Op: "backup", Detail: "another backup is under way; wait for its end"}
	}
	defer s.backups.Unlock()
	fs := s.options.FS
	copied := fs.PathJoin(s.dir, archiveDir)
	if err := fs.RemoveAll(copied); err != nil {
		return ArchiveInfo{}, ioError("backup", copied, err)
	}
	defer func() { _ = fs.RemoveAll(copied) }() // otherwise the next Open does it
	if err := s.copyTo(ctx, copied); err != nil {
		return ArchiveInfo{}, err
	}
	if err := writeFormat(fs, copied, s.id); err != nil {
		return ArchiveInfo{}, ioError("backup", copied, err)
	}
	a := &archiveWriter{ctx: ctx, fs: fs, tar: tar.NewWriter(w), info: ArchiveInfo{Format: archiveFormat, MadeAt: time.Now().UTC()}}
	err := a.write(copied, beside)
	return a.info, err
}

// An archiveWriter is one run of WriteArchive.
type archiveWriter struct {
	ctx  context.Context //nolint:containedctx // lives as long as one call
	fs   vfs.FS
	tar  *tar.Writer
	info ArchiveInfo
	list archiveList
}

func (a *archiveWriter) write(dir string, beside func() ([]ArchivedFile, error)) error {
	names, err := a.fs.List(dir)
	if err != nil {
		return ioError("backup", dir, err)
	}
	slices.Sort(names)
	sizes := make(map[string]int64)
	for _, name := range names {
		info, err := a.fs.Stat(a.fs.PathJoin(dir, name))
		if err != nil {
			return ioError("backup", dir, err)
		}
		sizes[name] = info.Size()
		a.info.Bytes += info.Size()
	}
	var others []ArchivedFile
	if beside != nil {
		if others, err = beside(); err != nil {
			return err
		}
	}
	for _, other := range others {
		a.info.Bytes += int64(len(other.Content))
	}
	a.info.Files = len(names) + len(others)
	if err := a.object(archiveHead, a.info); err != nil {
		return err
	}
	for _, name := range names {
		if err := a.copyFile(a.fs.PathJoin(dir, name), path.Join(ArchivedStore, engineDir, name), sizes[name]); err != nil {
			return err
		}
	}
	for _, other := range others {
		if err := a.entry(other.Name, int64(len(other.Content)), bytes.NewReader(other.Content)); err != nil {
			return err
		}
	}
	if err := a.object(archiveEnd, a.list); err != nil {
		return err
	}
	return a.tar.Close()
}

func (a *archiveWriter) object(name string, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return a.entry(name, int64(len(text)), bytes.NewReader(text))
}

func (a *archiveWriter) copyFile(from, name string, size int64) error {
	f, err := a.fs.Open(from, vfs.SequentialReadsOption)
	if err != nil {
		return ioError("backup", from, err)
	}
	err = a.entry(name, size, f)
	if closeErr := f.Close(); err == nil {
		err = ioError("backup", from, closeErr)
	}
	return err
}

// entry writes an entry, and adds it to the list.
func (a *archiveWriter) entry(name string, size int64, content io.Reader) error {
	header := &tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Mode: privateFile, ModTime: a.info.MadeAt.Truncate(time.Second)}
	if err := a.tar.WriteHeader(header); err != nil {
		return err
	}
	sum := sha256.New()
	buf := make([]byte, 64<<10)
	for left := size; left > 0; {
		if err := a.ctx.Err(); err != nil {
			return err
		}
		n, err := io.ReadFull(content, buf[:min(left, int64(len(buf)))])
		if err != nil {
			return ioError("backup", name, err)
		}
		_, _ = sum.Write(buf[:n]) // never fails
		if _, err := a.tar.Write(buf[:n]); err != nil {
			return err
		}
		left -= int64(n)
	}
	a.list.Files = append(a.list.Files, listedFile{name, size, hex.EncodeToString(sum.Sum(nil))})
	return nil
}

func archiveError(code driver.Code, path, format string, args ...any) error {
	return fileError(code, "open", path, fmt.Sprintf(format, args...), nil)
}
