package shard

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/maxhold"
)

// Settings are a configuration and the traits that follow from it.
type Settings struct {
	Config  driver.Config // as driver.Config.Stored returns it
	Traits  driver.Traits
	Version int64
}

// Stored returns the configuration as a shard keeps it, in JSON, which people can read
// too. Only the first shard has the annotation, which can be long.
func Stored(config driver.Config, shard int) string {
	if shard > 0 {
		config.Annotation = ""
	}
	text, _ := json.Marshal(config) // numbers and texts cannot fail
	return string(text)
}

func parseStored(text string) (config driver.Config, err error) {
	if err := json.Unmarshal([]byte(text), &config); err != nil {
		return config, fmt.Errorf("settings of the queue cannot be read: %w", err)
	}
	config.MaxHold = maxhold.Read(int64(config.MaxHold))
	return config, nil
}

// PackConfig packs the part of a configuration that falls to shard i of n, as head.lua
// reads it, without the version that open.lua puts before it.
func PackConfig(config driver.Config, n, i int) string {
	config.DedupMax = dedupMax(config)
	config = splitConfig(config, n, i)
	packed := PackDoubles(
		flag(config.StrictGroups), float64(config.MaxDeliveries),
		float64(config.MaxMessages), float64(config.MaxBytes), float64(config.MaxInFlight), float64(config.MaxDead),
		float64(config.MaxHold.Nanoseconds()), Micros(DedupWindow(config)), float64(config.DedupMax),
		Micros(config.RetainReady.Age), float64(config.RetainReady.Count),
		Micros(config.RetainDead.Age), float64(config.RetainDead.Count),
		flag(config.DeadLetterTo != ""),
	)
	if config.DropExpired { // older configurations end without this number
		packed += PackDoubles(1)
	}
	return packed
}

// dedupMax returns how many keys a queue remembers; Off is more than there can be.
func dedupMax(config driver.Config) int {
	if most := config.Effective().DedupMax; most != driver.Off {
		return most
	}
	return 1 << 50
}

// DedupWindow returns how long a queue remembers keys, and 0 if it takes none.
func DedupWindow(config driver.Config) time.Duration {
	return max(config.Effective().DedupWindow, 0)
}

// splitConfig returns the part of the limits that falls to shard i of n. The parts add
// up to the whole.
func splitConfig(config driver.Config, n, i int) driver.Config {
	for _, bound := range Bounds(&config) {
		part := *bound.Value / n
		if i < *bound.Value%n {
			part++
		}
		*bound.Value = part
	}
	return config
}

type bound struct {
	Field string
	Value *int
}

// Bounds returns the limits that are split over the shards.
func Bounds(config *driver.Config) []bound {
	return []bound{
		{"MaxMessages", &config.MaxMessages},
		{"MaxBytes", &config.MaxBytes},
		{"MaxInFlight", &config.MaxInFlight},
		{"MaxDead", &config.MaxDead},
		{"DedupMax", &config.DedupMax},
		{"RetainReady.Count", &config.RetainReady.Count},
		{"RetainDead.Count", &config.RetainDead.Count},
	}
}
