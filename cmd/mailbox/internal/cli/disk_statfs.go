//go:build linux || darwin

package cli

import "syscall"

// freeBytes returns the free and total space of the volume of a directory.
func freeBytes(dir string) (free, total uint64, err error) {
	var stat syscall.Statfs_t
	if err := syscall.Statfs(dir, &stat); err != nil {
		return 0, 0, err
	}
	return stat.Bavail * uint64(stat.Bsize), stat.Blocks * uint64(stat.Bsize), nil
}
