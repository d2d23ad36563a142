package cli

import (
	"path/filepath"
	"strings"

	"github.com/mailboxmq/mailbox/internal/checkup"
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
	found, told := checkup.Disk(d.notes)
	if !told {
		d.checkLocalDisk()
		return
	}
	d.findings = append(d.findings, found)
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
		d.add("disk", status, advice, "%s (%.0f%%) are free for %s", checkup.Bytes(free), part*100, filepath.Clean(dir))
		return
	}
	d.add("disk", statusSkip, "", "no daemon keeps its files in %s", strings.Join(d.shell.dataDirs(), " or "))
}
