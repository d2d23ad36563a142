package sqsclients_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// processor returns the processor time that the daemon has used. Linux counts it in
// hundredths of a second.
func (d *daemon) processor() time.Duration {
	d.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", d.PID()))
	if err != nil {
		d.t.Fatal(err)
	}
	// The name of the program, in parentheses, may contain blanks. The fields after it
	// start with the third.
	_, rest, _ := strings.Cut(string(text), ") ")
	const user, system = 14 - 3, 15 - 3
	ticks := 0
	for i, field := range strings.Fields(rest) {
		if i == user || i == system {
			n, err := strconv.Atoi(field)
			if err != nil {
				d.t.Fatal(err)
			}
			ticks += n
		}
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}
