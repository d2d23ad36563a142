package redistest

import (
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mailboxmq/mailbox/internal/testing/proctest"
)

// A clock is the wall clock of one server, which can be set. The server preloads a small
// library, see preload/clock.c, that adds the offset in a file.
type clock struct {
	library string
	file    string
	skew    atomic.Int64 // as it was set last, in nanoseconds
}

//go:embed preload/clock.c
var clockSource []byte

// compileClock builds the library once per test process.
var compileClock = sync.OnceValues(func() ([]byte, error) {
	if runtime.GOOS != "linux" {
		return nil, errors.New("redistest: setting a server's clock needs Linux")
	}
	dir, err := os.MkdirTemp("", "redistest-clock-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	source, library := filepath.Join(dir, "clock.c"), filepath.Join(dir, "clock.so")
	if err := os.WriteFile(source, clockSource, 0o600); err != nil {
		return nil, err
	}
	if _, err := exec.LookPath("cc"); err != nil {
		return nil, &proctest.MissingError{Program: "a C compiler called cc", Err: err}
	}
	out, err := exec.Command("cc", "-shared", "-fPIC", "-O2", "-o", library, source).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("redistest: compile the library that sets a server's clock: %w: %s", err, out)
	}
	return os.ReadFile(library)
})

func newClock(dir string, skew time.Duration) (*clock, error) {
	library, err := compileClock()
	if err != nil {
		return nil, err
	}
	c := &clock{library: filepath.Join(dir, "clock.so"), file: filepath.Join(dir, "clock")}
	if err := os.WriteFile(c.library, library, 0o600); err != nil {
		return nil, err
	}
	return c, c.set(skew)
}

// environment makes a server use the clock.
func (c *clock) environment() []string {
	return []string{"LD_PRELOAD=" + c.library, "REDISTEST_CLOCK=" + c.file}
}

// set changes the eight bytes in place: the server has them mapped.
func (c *clock) set(skew time.Duration) error {
	file, err := os.OpenFile(c.file, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	var bytes [8]byte
	binary.NativeEndian.PutUint64(bytes[:], uint64(skew))
	c.skew.Store(int64(skew))
	_, err = file.WriteAt(bytes[:], 0)
	return errors.Join(err, file.Close())
}
