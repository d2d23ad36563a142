package gates_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/internal/testing/volume"
)

// TestDaemonDoesNotGrowUnderLoad sends, receives and acks over three protocols, and looks at the
// memory, the goroutines and the open files of the daemon over time (SVC-6).
func TestDaemonDoesNotGrowUnderLoad(t *testing.T) {
	volume.Measures(t)
	length := volume.Duration(t, 5*time.Second, 2*time.Hour)
	d := start(t, append(onDisk, "--listen-metrics=127.0.0.1:0")...)
	const stretches = 10
	var seen []footprint
	began := time.Now()
	took := workBeside(t, d, length, func() {
		if time.Since(began) >= time.Duration(len(seen)+1)*length/(stretches+1) {
			seen = append(seen, footprintOf(t, d))
		}
	})
	seen = append(seen, footprintOf(t, d))
	operations := 0
	for _, times := range took {
		operations += len(times)
	}
	for i, at := range seen {
		part := func(what string) time.Duration {
			times := took[what]
			return round(percentile(slices.Clone(times[i*len(times)/len(seen):(i+1)*len(times)/len(seen)]), 0.99))
		}
		t.Logf("after %5.1f%%: %v; p99 of a send by HTTP %v, gRPC %v, OAP/1 %v", float64(i+1)*100/(stretches+1), at, part("HTTP send"), part("gRPC send"), part("OAP send"))
	}
	t.Logf("%d operations in %v", operations, length)
	if len(seen) < 2 {
		t.Fatal("the daemon was looked at only once, after the load")
	}
	first, last := seen[0], seen[len(seen)-1]
	if last.goroutines > first.goroutines+100 || last.files > first.files+100 {
		t.Errorf("the daemon grew from %v to %v", first, last)
	}
	// Dedup keys are remembered for five minutes, and take memory until then.
	if middle := seen[len(seen)/2]; length > 20*time.Minute && last.memory > middle.memory*3/2 {
		t.Errorf("the memory grew from %v to %v", middle, last)
	}
}

// A footprint is what a daemon uses.
type footprint struct{ memory, goroutines, files int }

// String returns it as text.
func (f footprint) String() string {
	return fmt.Sprintf("%d MiB resident, %d goroutines, %d files", f.memory>>20, f.goroutines, f.files)
}

func footprintOf(t *testing.T, d *daemon) footprint {
	t.Helper()
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", d.PID()))
	if err != nil {
		t.Fatal(err)
	}
	f := footprint{memory: residentBytes(t, d.PID()), files: len(files)}
	_, rest, _ := strings.Cut(scrape(t, d), "\ngo_goroutines ")
	if _, err := fmt.Sscan(rest, &f.goroutines); err != nil {
		t.Fatalf("go_goroutines: %v", err)
	}
	return f
}
