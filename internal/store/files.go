package store

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Names in a store's directory. The package documentation shows the tree.
const (
	engineDir   = "db"
	creatingDir = "db.creating"
	archiveDir  = "db.archive"
	lockFile    = "LOCK"
	ballastFile = "BALLAST"
	formatFile  = "MAILBOX_FORMAT"
	sealPrefix  = "seal-"
	logListFile = sealPrefix + "logs"
	tempSuffix  = ".tmp"

	manifestPrefix = "MANIFEST-"
	manifestMarker = "manifest"
	logSuffix      = ".log"
)

// A fileClass is the purpose of an engine file, which determines how serious a failed write is.
type fileClass uint8

const (
	// classCritical: the engine cannot continue without it (markers, options, seals, the
	// directory itself).
	classCritical fileClass = iota
	// classLog: a write-ahead log.
	classLog
	// classManifest: the list of live tables.
	classManifest
	// classTable: a sorted table. Its content is also in a log, or in the
	// tables it is made from, until a manifest names it.
	classTable
)

func classOf(base string) fileClass {
	switch {
	case strings.HasSuffix(base, logSuffix):
		return classLog
	case strings.HasPrefix(base, manifestPrefix):
		return classManifest
	case strings.HasSuffix(base, ".sst"), strings.HasSuffix(base, ".blob"):
		return classTable
	}
	return classCritical
}

// logNumber returns the number in the name of a write-ahead log.
func logNumber(base string) (uint64, bool) {
	digits, ok := strings.CutSuffix(base, logSuffix)
	if !ok {
		return 0, false
	}
	number, err := strconv.ParseUint(digits, 10, 64)
	return number, err == nil
}

// logName returns the engine's name for a log.
func logName(number uint64) string { return fmt.Sprintf("%06d%s", number, logSuffix) }

// syncDir makes the entries of a directory durable.
func syncDir(fs vfs.FS, dir string) error {
	d, err := fs.OpenDir(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	if closeErr := d.Close(); err == nil {
		err = closeErr
	}
	return err
}
