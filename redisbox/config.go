package redisbox

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// settings are a configuration and the traits that follow from it.
type settings struct {
	config  driver.Config // as driver.Config.Stored returns it
	traits  driver.Traits
	version int64
}

// stored returns the configuration as a shard keeps it, in JSON, which people can read
// too. Only the first shard has the annotation, which can be long.
func stored(config driver.Config, shard int) string {
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
	config.MaxHold = driver.ReadMaxHold(int64(config.MaxHold))
	return config, nil
}

// packConfig packs the part of a configuration that falls to shard i of n, as head.lua
// reads it, without the version that open.lua puts before it.
func packConfig(config driver.Config, n, i int) string {
	config.DedupMax = dedupMax(config)
	config = splitConfig(config, n, i)
	packed := packDoubles(
		flag(config.StrictGroups), float64(config.MaxDeliveries),
		float64(config.MaxMessages), float64(config.MaxBytes), float64(config.MaxInFlight), float64(config.MaxDead),
		float64(config.MaxHold.Nanoseconds()), micros(dedupWindow(config)), float64(config.DedupMax),
		micros(config.RetainReady.Age), float64(config.RetainReady.Count),
		micros(config.RetainDead.Age), float64(config.RetainDead.Count),
		flag(config.DeadLetterTo != ""),
	)
	if config.DropExpired { // older configurations end without this number
		packed += packDoubles(1)
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

// dedupWindow returns how long a queue remembers keys, and 0 if it takes none.
func dedupWindow(config driver.Config) time.Duration {
	return max(config.Effective().DedupWindow, 0)
}

// splitConfig returns the part of the limits that falls to shard i of n. The parts add
// up to the whole.
func splitConfig(config driver.Config, n, i int) driver.Config {
	for _, bound := range bounds(&config) {
		part := *bound.value / n
		if i < *bound.value%n {
			part++
		}
		*bound.value = part
	}
	return config
}

type bound struct {
	field string
	value *int
}

// bounds returns the limits that are split over the shards.
func bounds(config *driver.Config) []bound {
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
