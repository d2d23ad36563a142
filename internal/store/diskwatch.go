package store

import (
	"os"
	"slices"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// A SlowOperation is an operation on the disk that takes, or took, longer than
// Options.SlowDisk.
type SlowOperation struct {
	Path      string
	Operation string
	Duration  time.Duration
}

// slowFor is how long a disk counts as slow after its last slow operation.
const slowFor = 10 * time.Second

// diskWatch measures operations on the disk and reports those that do not return. The engine
// has a similar mechanism (vfs.WithDiskHealthChecks), but it keeps a ticker for every open
// file, so an idle store would wake the processor all the time. This one has a single timer
// that runs only during operations.
type diskWatch struct {
	limit  time.Duration
	onSlow func(SlowOperation)

	mu       sync.Mutex
	running  []runningOperation // a slot is free when its start is zero
	count    int                // slots in use
	timer    *time.Timer
	armed    bool
	stopped  bool
	lastSlow time.Time
}

type runningOperation struct {
	path, operation string
	start           time.Time
	reported        bool
}

func newDiskWatch(limit time.Duration, onSlow func(SlowOperation)) *diskWatch {
	return &diskWatch{limit: limit, onSlow: onSlow}
}

// begin records the start of an operation; the result is for end.
func (w *diskWatch) begin(path, operation string) (slot int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	free := func(r runningOperation) bool { return r.start.IsZero() }
	slot = slices.IndexFunc(w.running, free)
	if slot < 0 {
		slot = len(w.running)
		w.running = append(w.running, runningOperation{})
	}
	w.running[slot] = runningOperation{path: path, operation: operation, start: time.Now()}
	w.count++
	if !w.armed && !w.stopped {
		w.arm()
	}
	return slot
}

func (w *diskWatch) end(slot int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if now := time.Now(); now.Sub(w.running[slot].start) >= w.limit {
		w.lastSlow = now
	}
	w.running[slot] = runningOperation{}
	w.count--
}

// arm starts the timer. w.mu must be held.
func (w *diskWatch) arm() {
	w.armed = true
	if w.timer == nil {
		w.timer = time.AfterFunc(w.limit, w.look)
		return
	}
	w.timer.Reset(w.limit)
}

// look runs when the timer fires: it reports each slow operation once, and stops the timer if
// no operation is running.
func (w *diskWatch) look() {
	var slow []SlowOperation
	w.mu.Lock()
	now := time.Now()
	for i := range w.running {
		r := &w.running[i]
		if r.start.IsZero() || now.Sub(r.start) < w.limit {
			continue
		}
		w.lastSlow = now
		if !r.reported {
			r.reported = true
			slow = append(slow, SlowOperation{Path: r.path, Operation: r.operation, Duration: now.Sub(r.start)})
		}
	}
	w.armed = false
	if w.count > 0 && !w.stopped {
		w.arm()
	}
	w.mu.Unlock()
	for _, s := range slow {
		w.onSlow(s)
	}
}

// state reports whether an operation takes too long now, and whether one does or did a moment
// ago.
func (w *diskWatch) state() (hangs, slow bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	hangs = slices.ContainsFunc(w.running, func(r runningOperation) bool {
		return !r.start.IsZero() && now.Sub(r.start) >= w.limit
	})
	return hangs, hangs || !w.lastSlow.IsZero() && now.Sub(w.lastSlow) < slowFor
}

func (w *diskWatch) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
	if w.timer != nil {
		w.timer.Stop()
	}
}

// watchFS is a file system whose changes are measured.
type watchFS struct {
	vfs.FS
	watch *diskWatch
}

func (fs *watchFS) Unwrap() vfs.FS { return fs.FS }

func (fs *watchFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	slot := fs.watch.begin(name, "create")
	f, err := fs.FS.Create(name, category)
	fs.watch.end(slot)
	return fs.wrap(name, f, err)
}

func (fs *watchFS) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
	slot := fs.watch.begin(newname, "reuse")
	f, err := fs.FS.ReuseForWrite(oldname, newname, category)
	fs.watch.end(slot)
	return fs.wrap(newname, f, err)
}

func (fs *watchFS) OpenDir(name string) (vfs.File, error) {
	f, err := fs.FS.OpenDir(name)
	return fs.wrap(name, f, err)
}

func (fs *watchFS) wrap(name string, f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return &watchFile{File: f, watch: fs.watch, path: name}, nil
}

func (fs *watchFS) Rename(oldname, newname string) error {
	slot := fs.watch.begin(newname, "rename")
	defer fs.watch.end(slot)
	return fs.FS.Rename(oldname, newname)
}

func (fs *watchFS) Remove(name string) error {
	slot := fs.watch.begin(name, "remove")
	defer fs.watch.end(slot)
	return fs.FS.Remove(name)
}

func (fs *watchFS) MkdirAll(dir string, perm os.FileMode) error {
	slot := fs.watch.begin(dir, "create directory")
	defer fs.watch.end(slot)
	return fs.FS.MkdirAll(dir, perm)
}

type watchFile struct {
	vfs.File
	watch *diskWatch
	path  string
}

func (f *watchFile) Write(p []byte) (int, error) {
	slot := f.watch.begin(f.path, "write")
	defer f.watch.end(slot)
	return f.File.Write(p)
}

func (f *watchFile) Sync() error {
	slot := f.watch.begin(f.path, "sync")
	defer f.watch.end(slot)
	return f.File.Sync()
}

func (f *watchFile) SyncData() error {
	slot := f.watch.begin(f.path, "sync")
	defer f.watch.end(slot)
	return f.File.SyncData()
}

func (f *watchFile) SyncTo(length int64) (bool, error) {
	slot := f.watch.begin(f.path, "sync")
	defer f.watch.end(slot)
	return f.File.SyncTo(length)
}
