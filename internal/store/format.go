package store

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/mailboxmq/mailbox/driver"
)

// formatVersion is the version of the layout described in the package documentation and of the
// records that callers put into it. A store with a higher version is refused; one with a lower
// version gets this one when it is opened for writing. Every later version keeps the first line
// of the format file and its two checked copies, so that this code can distinguish newer from
// damaged.
//
//	1  until November 2026
//	2  messages have two checksums; see package diskbox
const formatVersion = 2

const formatTitle = "mailbox disk format "

// A storeID identifies one store. It is random and secret: watermarks in the log carry it, so a
// client cannot put a forged watermark into a message body.
type storeID [16]byte

func newStoreID() storeID {
	var id storeID
	rand.Read(id[:]) // never fails, see its documentation
	return id
}

func (id storeID) String() string { return hex.EncodeToString(id[:]) }

func formatText(version int, id storeID) string {
	return fmt.Sprintf("%s%d\nstore %s\n", formatTitle, version, id)
}

func writeFormat(fs vfs.FS, dir string, id storeID) error {
	return writeChecked(fs, fs.PathJoin(dir, formatFile), formatText(formatVersion, id))
}

// readFormat returns the id of the store in dir and its format, or a *driver.Error that says why
// the store must not be opened.
func readFormat(fs vfs.FS, dir string) (id storeID, version int, err error) {
	path := fs.PathJoin(dir, formatFile)
	body, err := readChecked(fs, path)
	switch {
	case errors.Is(err, errDamaged):
		return id, 0, fileError(driver.ErrIntegrity, "open", path,
			"the file is damaged; nothing was changed; restore the directory from a backup", err)
	case isNotExist(err):
		return id, 0, fileError(driver.ErrIntegrity, "open", path,
			"the file is missing: if this is not a store, choose another directory; if it is a damaged one, restore a backup; nothing was changed", err)
	case err != nil:
		return id, 0, ioError("open", path, err)
	}
	title, rest, _ := strings.Cut(body, "\n")
	number, isFormat := strings.CutPrefix(title, formatTitle)
	version, err = strconv.Atoi(number)
	if !isFormat || err != nil || version < 1 {
		return id, 0, fileError(driver.ErrConflict, "open", path, "this is not a Mailbox format file; choose another directory", nil)
	}
	if version > formatVersion {
		return id, 0, fileError(driver.ErrUnsupported, "open", path,
			fmt.Sprintf("the store has format %d, this program reads formats up to %d; use the version that wrote it, or a newer one", version, formatVersion), nil)
	}
	if n, err := hex.Decode(id[:], []byte(fields(rest)["store"])); err != nil || n != len(id) {
		return storeID{}, 0, fileError(driver.ErrIntegrity, "open", path, "the store id is missing; nothing was changed; restore the directory from a backup", err)
	}
	return id, version, nil
}
