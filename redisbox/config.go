package redisbox

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
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

// resolve returns the configuration to store for a queue when config is asked for.
// existing is the one in force, or nil.
func (b *Backend) resolve(name string, config driver.Config, existing *driver.Config) (driver.Config, error) {
	for _, given := range []driver.Config{config, b.options.Defaults} {
		if err := given.Validate(); err != nil {
			return config, err
		}
	}
	config = config.Resolve(existing, b.options.Defaults).Stored()
	return config, checkConfig(name, config)
}

// checkConfig refuses settings that no queue of this name can honour.
func checkConfig(name string, config driver.Config) error {
	invalid := func(field, detail string) error {
		return &driver.Error{Code: driver.ErrInvalid, Op: "configure", Queue: name, Field: field, Detail: detail}
	}
	if config.FairGroups {
		return &driver.Error{
			Code: driver.ErrUnsupported, Op: "configure", Queue: name, Field: "FairGroups",
			Detail: "queues in Redis have one order for all groups",
		}
	}
	shards := max(config.Shards, 1)
	for _, bound := range bounds(&config) {
		if value := *bound.value; value > 0 && value < shards {
			return invalid(bound.field, fmt.Sprintf("%d cannot be split over %d shards; use at least 1 a shard", value, shards))
		}
	}
	return nil
}

// newSettings returns a configuration with its traits.
func (b *Backend) newSettings(config driver.Config, version int64) *settings {
	traits := driver.Traits{
		Ordering:      driver.OrderingFIFO,
		Durability:    b.durability,
		ExactStats:    true,
		Groups:        true,
		StrictGroups:  config.StrictGroups,
		DeadLetters:   true,
		Peek:          true,
		Move:          true,
		LateAck:       true,
		ForgetDedup:   true,
		Usage:         true,
		DedupWindow:   dedupWindow(config),
		MaxBodyBytes:  b.options.MaxBodyBytes,
		MaxAttributes: driver.MaxAttributes, MaxAttributeBytes: driver.MaxAttributeBytes,
		MaxBatch:      driver.DefaultMaxBatch,
		MaxDelay:      driver.DefaultMaxDelay,
		MaxVisibility: driver.DefaultMaxVisibility,
	}
	if config.Shards > 1 {
		traits.Ordering = driver.OrderingPerShard
	}
	return &settings{config: config, traits: traits, version: version}
}

// micros converts a duration to microseconds, as scripts count, rounded up so that
// no lease or delay ends too early.
func micros(d time.Duration) float64 {
	return math.Ceil(float64(d) / float64(time.Microsecond))
}

func flag(on bool) float64 {
	if on {
		return 1
	}
	return 0
}

// packDoubles packs numbers as struct.pack('<dd…') does.
func packDoubles(numbers ...float64) string {
	packed := make([]byte, 0, 8*len(numbers))
	for _, number := range numbers {
		packed = binary.LittleEndian.AppendUint64(packed, math.Float64bits(number))
	}
	return string(packed)
}

// doubleAt reads the i-th double of a packed text.
func doubleAt(packed string, i int) float64 {
	return math.Float64frombits(binary.LittleEndian.Uint64([]byte(packed[8*i : 8*i+8])))
}
