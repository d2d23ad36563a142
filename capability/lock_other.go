//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package capability

// lockFile does nothing where files cannot be locked in a way that ends with the
// process: there it is up to the operator to start one process only.
func lockFile(string) (unlock func() error, err error) {
	return func() error { return nil }, nil
}

func isLocked(error) bool { return false }
