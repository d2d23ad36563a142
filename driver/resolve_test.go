package driver_test

import (
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// TestResolveFillsWhatIsUnset of a new and of an existing queue.
func TestResolveFillsWhatIsUnset(t *testing.T) {
	builtIn := driver.Config{
		Shards: 1, MaxDeliveries: 5, MaxMessages: driver.Off, MaxBytes: driver.Off, MaxInFlight: driver.Off, MaxDead: 10_000,
		DedupWindow: 5 * time.Minute, DedupMax: 1_000_000, MaxHold: driver.Off, TTL: driver.Off, PriorityAging: time.Minute,
		RetainReady: driver.Retention{Age: driver.Off, Count: driver.Off}, RetainDead: driver.Retention{Age: driver.Off, Count: driver.Off},
	}
	with := func(change func(*driver.Config)) driver.Config {
		config := builtIn
		change(&config)
		return config
	}
	existing := driver.Config{MaxDeliveries: 7, MaxMessages: 100} // as it is stored: the rest is off
	for name, c := range map[string]struct {
		asked, defaults driver.Config
		existing        *driver.Config
		want            driver.Config
	}{
		"new with nothing set": {want: builtIn},
		"new with defaults of the backend": {
			defaults: driver.Config{MaxDeliveries: 3, MaxDead: driver.Off},
			want:     with(func(c *driver.Config) { c.MaxDeliveries, c.MaxDead = 3, driver.Off }),
		},
		"new and off": {
			asked: driver.Config{MaxDeliveries: driver.Off}, defaults: driver.Config{MaxDeliveries: 3},
			want: with(func(c *driver.Config) { c.MaxDeliveries = driver.Off }),
		},
		"new with dead letters elsewhere": {
			asked: driver.Config{DeadLetterTo: "failed"},
			want:  with(func(c *driver.Config) { c.DeadLetterTo, c.MaxDead = "failed", driver.Off }),
		},
		"new with retention of dead letters": {
			asked: driver.Config{RetainDead: driver.Retention{Age: time.Hour}},
			want:  with(func(c *driver.Config) { c.RetainDead.Age, c.MaxDead = time.Hour, driver.Off }),
		},
		"existing keeps": {
			asked: driver.Config{MaxMessages: 50}, existing: &existing, defaults: driver.Config{MaxDeliveries: 3},
			want: with(func(c *driver.Config) { c.MaxDeliveries, c.MaxMessages, c.MaxDead = 7, 50, driver.Off }),
		},
		"existing turned off": {
			asked: driver.Config{MaxDeliveries: driver.Off}, existing: &existing,
			want: with(func(c *driver.Config) { c.MaxDeliveries, c.MaxMessages, c.MaxDead = driver.Off, 100, driver.Off }),
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := c.asked.Resolve(c.existing, c.defaults)
			if got != c.want {
				t.Errorf("got  %+v\nwant %+v", got, c.want)
			}
			if again := got.Stored().Effective(); again != got {
				t.Errorf("stored and read: got  %+v\nwant %+v", again, got)
			}
			if again := (driver.Config{}).Resolve(&got, c.defaults); again.MaxDeliveries != got.MaxDeliveries || again.MaxDead != got.MaxDead {
				t.Errorf("resolved again: got  %+v\nwant %+v", again, got)
			}
		})
	}
}

func TestStoredZeroOfPriorityAgingMeansDefault(t *testing.T) {
	if read := (driver.Config{}).Effective(); read.PriorityAging != driver.DefaultPriorityAging {
		t.Errorf("got %v, want the default", read.PriorityAging)
	}
	off := driver.Config{PriorityAging: driver.Off}
	if read := off.Stored().Effective(); read.PriorityAging != driver.Off {
		t.Errorf("off: got %v, want Off", read.PriorityAging)
	}
	for _, groups := range []driver.Config{{StrictGroups: true}, {FairGroups: true}} {
		got := groups.Resolve(nil, driver.Config{PriorityAging: time.Hour})
		if got.PriorityAging != driver.Off || got.Stored().Effective() != got || got.Validate() != nil {
			t.Errorf("groups: got %+v, want no ageing", got)
		}
	}
}

func TestStoredZeroOfDedupMeansDefault(t *testing.T) {
	read := driver.Config{}.Effective()
	if read.DedupWindow != driver.DefaultDedupWindow || read.DedupMax != driver.DefaultDedupMax {
		t.Errorf("got %v and %d, want the defaults", read.DedupWindow, read.DedupMax)
	}
	off := driver.Config{DedupWindow: driver.Off, DedupMax: driver.Off}
	if read := off.Stored().Effective(); read.DedupWindow != driver.Off || read.DedupMax != driver.Off {
		t.Errorf("off: got %v and %d, want Off", read.DedupWindow, read.DedupMax)
	}
}
