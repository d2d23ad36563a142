package cli

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
)

// How little free space is too little if the daemon does not report its reserve.
const (
	roomWarning = 0.10
	roomFailure = 0.02
)

// checkDisk compares the free space of the daemon's volume with the reserve. A
// daemon without messages on disk does not report them; then it checks the
// volume of a data directory on this machine.
func (d *doctor) checkDisk() {
	var told [3]uint64
	for i, name := range []string{"disk_volume_bytes", "disk_free_bytes", "disk_reserve_bytes"} {
		n, err := strconv.ParseUint(d.notes[name], 10, 64)
		if err != nil || told[0] == 0 && i > 0 {
			d.checkLocalDisk()
			return
		}
		told[i] = n
	}
	total, free, reserve := told[0], told[1], told[2]
	status, advice := statusOK, ""
	switch {
	case free < reserve:
		status, advice = statusFail, "free space on the volume, or set a smaller --disk-reserve: sends are refused until then"
	case free < 2*reserve:
		status, advice = statusWarn, "free space: sends are refused when less than the reserve is free"
	}
	d.add("disk", status, advice, "%s of %s are free, and %s are kept in reserve", bytesText(free), bytesText(total), bytesText(reserve))
}

// checkLocalDisk checks the volume of the first data directory that exists.
func (d *doctor) checkLocalDisk() {
	if d.endpoint.socket == "" && !loopback(d.endpoint.host) {
		d.add("disk", statusSkip, "", "the daemon is on another machine and does not report the state of its disk")
		return
	}
	for _, dir := range d.shell.dataDirs() {
		free, total, err := freeBytes(dir)
		if err != nil || total == 0 {
			continue
		}
		part := float64(free) / float64(total)
		status, advice := statusOK, ""
		switch {
		case part < roomFailure:
			status, advice = statusFail, "free space: a daemon without space accepts no messages"
		case part < roomWarning:
			status, advice = statusWarn, "free space before the daemon refuses messages"
		}
		d.add("disk", status, advice, "%s (%.0f%%) are free for %s", bytesText(free), part*100, filepath.Clean(dir))
		return
	}
	d.add("disk", statusSkip, "", "no daemon keeps its files in %s", strings.Join(d.shell.dataDirs(), " or "))
}

// bytesText returns a number of bytes with a unit: "512 B", "12.5 MiB".
func bytesText(n uint64) string {
	if n < 1<<10 {
		return fmt.Sprintf("%d B", n)
	}
	value, unit := float64(n)/(1<<10), 0
	for value >= 1<<10 && unit < 3 {
		value, unit = value/(1<<10), unit+1
	}
	return strconv.FormatFloat(value, 'f', 1, 64) + " " + []string{"KiB", "MiB", "GiB", "TiB"}[unit]
}
