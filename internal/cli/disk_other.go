//go:build !linux && !darwin

package cli

import "errors"

// freeBytes is how much room there is on the disk of a directory.
func freeBytes(string) (free, total uint64, err error) { return 0, 0, errors.ErrUnsupported }
