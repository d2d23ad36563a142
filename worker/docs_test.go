package worker_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/maxhold"
	"github.com/mailboxmq/mailbox/worker"
)

// TestDocumentListsWorkerDefaults reads the table in docs/workers.md.
func TestDocumentListsWorkerDefaults(t *testing.T) {
	page, err := os.ReadFile("../docs/workers.md")
	if err != nil {
		t.Fatal(err)
	}
	for option, want := range map[string]string{
		"Options.Visibility":               short(worker.DefaultVisibility),
		"Options.Wait":                     short(worker.DefaultWait),
		"Options.Drain":                    short(worker.DefaultDrain),
		"Options.Backoff":                  fmt.Sprintf("%s for each delivery, %s at most", short(worker.DefaultBackoff(1)), short(worker.DefaultBackoff(1000))),
		"BatchOptions.Size":                fmt.Sprint(worker.DefaultBatchSize),
		"BatchOptions.Fill":                short(worker.DefaultBatchFill),
		"GroupOptions.ShutdownTimeout":     short(worker.DefaultShutdownTimeout),
		"GroupOptions.Watchdog":            short(worker.DefaultWatchdog),
		"GroupOptions.CancelStuck":         "off",
		"Options.Concurrency":              "1",
		"GroupOptions.DeadLetterThreshold": "none",
	} {
		if row := fmt.Sprintf("| `%s` | %s |", option, want); !strings.Contains(string(page), row) {
			t.Errorf("docs/workers.md has no row %q", row)
		}
	}
	for _, text := range []string{
		"`WatchdogGrace` (" + short(worker.DefaultWatchdogGrace) + ")",
		fmt.Sprintf("held for %d hours", int(maxhold.Default.Hours())),
		fmt.Sprintf("at most %d,000 by default", driver.Config{}.Resolve(nil, driver.Config{}).MaxDead/1000),
	} {
		if !strings.Contains(string(page), text) {
			t.Errorf("docs/workers.md does not say %q", text)
		}
	}
	if driver.DefaultMaxDeliveries != 5 {
		t.Errorf("docs/workers.md says that messages die after five deliveries, and they do after %d", driver.DefaultMaxDeliveries)
	}
}

// short spells 12m, and not 12m0s.
func short(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	return text
}
