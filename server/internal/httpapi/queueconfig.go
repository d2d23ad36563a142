package httpapi

import (
	"fmt"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/maxhold"
)

// configBody is a configuration in JSON. A missing setting is unset: a new queue gets
// the daemon's default, and an existing one keeps its value. 0 turns a setting off.
// Answers have all settings.
//
// Earlier clients send all settings, and 0 for the default. They are recognized by
// shards, which cannot be off and which they send as 0 too.
type configBody struct {
	Shards           *int      `json:"shards"`
	StrictGroups     bool      `json:"strict_groups"`
	FairGroups       bool      `json:"fair_groups"`
	MaxAttempts      *int      `json:"max_attempts"`
	MaxMessages      *int      `json:"max_messages"`
	MaxBytes         *int      `json:"max_bytes"`
	MaxInFlight      *int      `json:"max_in_flight"`
	MaxDead          *int      `json:"max_dead"`
	DedupWindowMS    *duration `json:"dedup_window_ms"`
	DedupMax         *int      `json:"dedup_max"`
	RetainReadyMS    *duration `json:"retain_ready_ms"`
	RetainReadyCount *int      `json:"retain_ready_count"`
	RetainDeadMS     *duration `json:"retain_dead_ms"`
	RetainDeadCount  *int      `json:"retain_dead_count"`
	MaxHoldMS        *duration `json:"max_hold_ms"`
	// MaxMultiple is max_hold, a multiple of the visibility that earlier clients
	// send. Any multiple means maxhold.Default, and 0 leaves the bound unset.
	MaxMultiple  *int      `json:"max_hold,omitempty"`
	TTLMS        *duration `json:"ttl_ms"`
	AgingMS      *duration `json:"priority_aging_ms"`
	GroupLimits  string    `json:"group_limits"`
	DeadLetterTo string    `json:"dead_letter_to"`
	DropExpired  bool      `json:"drop_expired"`
	Annotation   string    `json:"annotation"`
}

// config reads a configuration. The error is ErrInvalid, and names the field.
func (b *configBody) config() (driver.Config, error) {
	off := settingReader{zero: driver.Off}
	var shards int
	if b.Shards != nil {
		if shards = *b.Shards; shards == 0 {
			off.zero = 0
		}
	}
	config := driver.Config{
		Shards: shards, StrictGroups: b.StrictGroups, FairGroups: b.FairGroups,
		MaxDeliveries: off.number("max_attempts", b.MaxAttempts), MaxMessages: off.number("max_messages", b.MaxMessages),
		MaxBytes: off.number("max_bytes", b.MaxBytes), MaxInFlight: off.number("max_in_flight", b.MaxInFlight),
		MaxDead: off.number("max_dead", b.MaxDead), DedupWindow: off.span("dedup_window_ms", b.DedupWindowMS),
		DedupMax: off.number("dedup_max", b.DedupMax), MaxHold: off.span("max_hold_ms", b.MaxHoldMS),
		RetainReady: driver.Retention{
			Age: off.span("retain_ready_ms", b.RetainReadyMS), Count: off.number("retain_ready_count", b.RetainReadyCount),
		},
		RetainDead: driver.Retention{
			Age: off.span("retain_dead_ms", b.RetainDeadMS), Count: off.number("retain_dead_count", b.RetainDeadCount),
		},
		TTL: off.span("ttl_ms", b.TTLMS), PriorityAging: off.span("priority_aging_ms", b.AgingMS),
		GroupLimits:  b.GroupLimits,
		DeadLetterTo: b.DeadLetterTo, DropExpired: b.DropExpired, Annotation: b.Annotation,
	}
	if b.MaxHoldMS == nil && b.MaxMultiple != nil {
		config.MaxHold = maxhold.Read(int64(*b.MaxMultiple))
	}
	return config, off.err
}

// settingReader reads settings that can be missing or off.
type settingReader struct {
	zero int // what 0 means
	err  error
}

func (r *settingReader) number(field string, value *int) int {
	switch {
	case value == nil:
		return 0
	case *value < 0:
		r.refuse(field, fmt.Sprint(*value))
		return 0
	case *value == 0:
		return r.zero
	}
	return *value
}

func (r *settingReader) span(field string, value *duration) time.Duration {
	switch {
	case value == nil:
		return 0
	case *value < 0:
		r.refuse(field, "it")
		return 0
	case *value == 0:
		return time.Duration(r.zero)
	}
	return time.Duration(*value)
}

func (r *settingReader) refuse(field, value string) {
	if r.err == nil {
		r.err = &driver.Error{Code: driver.ErrInvalid, Op: "configure", Field: field, Detail: value + " is negative; 0 turns it off"}
	}
}

func configBodyOf(c *driver.Config) configBody {
	return configBody{
		Shards: &c.Shards, StrictGroups: c.StrictGroups, FairGroups: c.FairGroups,
		MaxAttempts: orZero(c.MaxDeliveries), MaxMessages: orZero(c.MaxMessages), MaxBytes: orZero(c.MaxBytes),
		MaxInFlight: orZero(c.MaxInFlight), MaxDead: orZero(c.MaxDead), DedupWindowMS: orZero(duration(c.DedupWindow)),
		DedupMax: orZero(c.DedupMax), RetainReadyMS: orZero(duration(c.RetainReady.Age)), RetainReadyCount: orZero(c.RetainReady.Count),
		RetainDeadMS: orZero(duration(c.RetainDead.Age)), RetainDeadCount: orZero(c.RetainDead.Count), MaxHoldMS: orZero(duration(c.MaxHold)),
		TTLMS: orZero(duration(c.TTL)), AgingMS: orZero(duration(c.PriorityAging)), GroupLimits: c.GroupLimits,
		DeadLetterTo: c.DeadLetterTo, DropExpired: c.DropExpired, Annotation: c.Annotation,
	}
}

// orZero returns 0 for a setting that is off.
func orZero[N int | duration](value N) *N {
	value = max(value, 0)
	return &value
}
