//go:build unix

package privatefile

import (
	"io/fs"
	"syscall"
)

// owner returns the user that a file belongs to.
func owner(info fs.FileInfo) int { return int(info.Sys().(*syscall.Stat_t).Uid) }
