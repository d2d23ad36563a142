//go:build !linux && !darwin

package cli

import "errors"

// freeBytes returns the free and total space of the volume of a directory.
func freeBytes(string) (free, total uint64, err error) { return 0, 0, errors.ErrUnsupported }
