package store

import (
	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/mailboxmq/mailbox/driver"
)

// create creates a store in dir. A crash while the engine creates its first files can leave
// them in a state that it refuses to open, so they are created under another name, completely,
// and appear with one rename.
func create(dir string, o Options) error {
	path := o.FS.PathJoin(dir, creatingDir)
	if err := o.FS.RemoveAll(path); err != nil {
		return ioError("create", path, err)
	}
	id := newStoreID()
	// Slow, full and dead disks are treated alike here: as an error.
	f := &fuse{log: o.Logger}
	if err := createEngine(path, o, f, id); err != nil {
		if failure := f.blownAtOpen("create"); failure != nil {
			return failure
		}
		return ioError("create", path, err)
	}
	return publish(o.FS, dir, id)
}

// createEngine creates the engine's files, with one record in them.
//
// The engine starts its first log in the oldest format it knows, in which a
// damaged record silently ends the log. Flush ends that log; all later logs
// have the newest format.
func createEngine(path string, o Options, f *fuse, id storeID) error {
	tracker := &logTracker{}
	guard := newGuardFS(o.FS, path, f, func() {})
	logs := newLogList(guard, path, map[uint64]watermark{})
	fs := &sealFS{FS: guard, dir: path, tracker: tracker, logs: logs, forgetful: o.forgetSeals}
	options := o.engineOptions(fs, f, &pebble.EventListener{})
	options.ErrorIfExists = true
	db, err := pebble.Open(path, options)
	if err != nil {
		return err
	}
	err = db.Set(bootKey, id[:], pebble.Sync)
	if err == nil {
		err = db.Flush()
	}
	if closeErr := db.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = logs.note(tracker.get())
	}
	if err == nil {
		err = f.blown()
	}
	return err
}

// publish gives a complete set of engine files in dir/db.creating its final name. It is the
// last step of creating a store, and of a backup.
func publish(fs vfs.FS, dir string, id storeID) error {
	creating, path := fs.PathJoin(dir, creatingDir), fs.PathJoin(dir, engineDir)
	// This also syncs the directory, with the names of all other files.
	if err := writeFormat(fs, creating, id); err != nil {
		return ioError("create", creating, err)
	}
	if _, err := fs.Stat(path); !isNotExist(err) {
		return fileError(driver.ErrConflict, "create", path, "the store exists already; choose another directory", err)
	}
	if err := fs.Rename(creating, path); err != nil {
		return ioError("create", path, err)
	}
	return ioError("create", dir, settleNames(fs, dir))
}
