package rpcapi

import (
	"fmt"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	mailboxv1 "github.com/mailboxmq/mailbox/gen/mailbox/v1"
	"github.com/mailboxmq/mailbox/internal/maxhold"
)

// config reads a configuration: an absent field is unset, and 0 turns a limit off. The
// error is ErrInvalid and names the field.
func config(c *mailboxv1.TopicConfig) (driver.Config, error) {
	if c == nil {
		return driver.Config{}, nil
	}
	var r settingReader
	config := driver.Config{
		Shards: int(c.GetShards()), StrictGroups: c.GetStrictGroups(), MaxDeliveries: readNumber(&r, "max_attempts", c.MaxAttempts),
		MaxMessages: readNumber(&r, "max_messages", c.MaxMessages), MaxBytes: readNumber(&r, "max_bytes", c.MaxBytes),
		MaxInFlight: readNumber(&r, "max_in_flight", c.MaxInFlight), MaxDead: readNumber(&r, "max_dead", c.MaxDead),
		DedupWindow: r.span("dedup_window_ms", c.DedupWindowMs), DedupMax: readNumber(&r, "dedup_max", c.DedupMax),
		RetainReady: r.retention("retain_ready", c.GetRetainReady()), RetainDead: r.retention("retain_dead", c.GetRetainDead()),
		MaxHold: r.span("max_hold_ms", c.MaxHoldMs), TTL: r.span("ttl_ms", c.TtlMs), PriorityAging: r.span("priority_aging_ms", c.PriorityAgingMs), DeadLetterTo: c.GetDeadLetterTo(),
		GroupLimits: c.GetGroupLimits(), FairGroups: c.GetFairGroups(), DropExpired: c.GetDropExpired(), Annotation: c.GetAnnotation(),
	}
	if c.MaxHoldMs == nil {
		config.MaxHold = maxhold.Read(int64(c.GetMaxHold())) // of an earlier client
	}
	return config, r.err
}

// settingReader reads settings that can be absent or off.
type settingReader struct{ err error }

func readNumber[N int32 | int64](r *settingReader, field string, value *N) int {
	switch {
	case value == nil:
		return 0
	case *value < 0:
		r.refuse(field, fmt.Sprint(*value))
		return 0
	case *value == 0:
		return driver.Off
	}
	return number(int64(*value))
}

func (r *settingReader) span(field string, ms *float64) time.Duration {
	if ms == nil {
		return 0
	}
	d := duration(*ms)
	switch {
	case d < 0:
		r.refuse(field, fmt.Sprint(*ms))
		return 0
	case d == 0:
		return driver.Off
	}
	return d
}

func (r *settingReader) retention(field string, of *mailboxv1.Retention) driver.Retention {
	if of == nil {
		return driver.Retention{}
	}
	return driver.Retention{Age: r.span(field+".age_ms", of.AgeMs), Count: readNumber(r, field+".count", of.Count)}
}

func (r *settingReader) refuse(field, value string) {
	if r.err == nil {
		r.err = &driver.Error{Code: driver.ErrInvalid, Op: "configure", Field: field, Detail: value + " is negative; 0 turns it off"}
	}
}

func wireConfig(c driver.Config) *mailboxv1.TopicConfig {
	return &mailboxv1.TopicConfig{
		Shards: int32(c.Shards), StrictGroups: c.StrictGroups, MaxAttempts: wireNumber[int32](c.MaxDeliveries),
		MaxMessages: wireNumber[int64](c.MaxMessages), MaxBytes: wireNumber[int64](c.MaxBytes), MaxInFlight: wireNumber[int64](c.MaxInFlight),
		MaxDead: wireNumber[int64](c.MaxDead), DedupWindowMs: wireSpan(c.DedupWindow), DedupMax: wireNumber[int64](c.DedupMax),
		RetainReady: wireRetention(c.RetainReady), RetainDead: wireRetention(c.RetainDead),
		MaxHoldMs: wireSpan(c.MaxHold), TtlMs: wireSpan(c.TTL), PriorityAgingMs: wireSpan(c.PriorityAging), DeadLetterTo: c.DeadLetterTo,
		GroupLimits: c.GroupLimits, FairGroups: &c.FairGroups, DropExpired: &c.DropExpired, Annotation: &c.Annotation,
	}
}

// wireNumber returns 0 for a limit that is off.
func wireNumber[N int32 | int64](n int) *N {
	value := N(max(n, 0))
	return &value
}

func wireSpan(d time.Duration) *float64 {
	ms := milliseconds(max(d, 0))
	return &ms
}

func wireRetention(r driver.Retention) *mailboxv1.Retention {
	return &mailboxv1.Retention{AgeMs: wireSpan(r.Age), Count: wireNumber[int64](r.Count)}
}
