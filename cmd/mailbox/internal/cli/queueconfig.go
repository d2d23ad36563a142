package cli

import (
	"context"
	"strconv"
	"time"

	"github.com/spf13/pflag"
)

// configBody is the configuration of a queue in JSON, here and on the wire. An
// absent setting is unset: a new queue gets the daemon's default, an existing one keeps
// its value. 0 is off. The daemon answers with all settings.
type configBody struct {
	Shards           int      `json:"shards,omitempty"`
	StrictGroups     bool     `json:"strict_groups"`
	FairGroups       bool     `json:"fair_groups,omitempty"`
	MaxAttempts      *int     `json:"max_attempts,omitempty"`
	MaxMessages      *int     `json:"max_messages,omitempty"`
	MaxBytes         *int     `json:"max_bytes,omitempty"`
	MaxInFlight      *int     `json:"max_in_flight,omitempty"`
	MaxDead          *int     `json:"max_dead,omitempty"`
	DedupWindowMS    *float64 `json:"dedup_window_ms,omitempty"`
	DedupMax         *int     `json:"dedup_max,omitempty"`
	RetainReadyMS    *float64 `json:"retain_ready_ms,omitempty"`
	RetainReadyCount *int     `json:"retain_ready_count,omitempty"`
	RetainDeadMS     *float64 `json:"retain_dead_ms,omitempty"`
	RetainDeadCount  *int     `json:"retain_dead_count,omitempty"`
	MaxHoldMS        *float64 `json:"max_hold_ms,omitempty"`
	TTLMS            *float64 `json:"ttl_ms,omitempty"`
	AgingMS          *float64 `json:"priority_aging_ms,omitempty"`
	GroupLimits      string   `json:"group_limits,omitempty"`
	DropExpired      bool     `json:"drop_expired,omitempty"`
	DeadLetterTo     string   `json:"dead_letter_to"`
	// No flag sets it; it must be kept when another setting is changed.
	Annotation string `json:"annotation,omitempty"`
}

// config returns the current configuration of a queue.
func (a *api) config(ctx context.Context, queue string) (configBody, error) {
	var answer struct {
		Config configBody `json:"config"`
	}
	err := a.call(ctx, apiRequest{path: "/v1/queues/get", body: queueBody{queue}}, &answer)
	return answer.Config, err
}

// configFlags are settings of a queue as flags.
type configFlags struct {
	shards                   int
	strictGroups, fairGroups bool
	maxAttempts, maxMessages int
	maxBytes                 byteSize
	maxInFlight, maxDead     int
	dedupWindow              time.Duration
	dedupMax                 int
	retainReady, retainDead  time.Duration
	readyCount, deadCount    int
	maxHold, ttl, aging      time.Duration
	dropExpired              bool
	groupLimits              string
	deadLetterTo             string
}

func (f *configFlags) register(flags *pflag.FlagSet) {
	flags.IntVar(&f.shards, "shards", 0, "parts that the queue is split into; order holds within a part")
	flags.BoolVar(&f.strictGroups, "strict-groups", false, "deliver each group in order, and never two batches of it at a time")
	flags.BoolVar(&f.fairGroups, "fair-groups", false, "let messages of quiet groups go first, so that a noisy one does not delay the others")
	flags.IntVar(&f.maxAttempts, "max-attempts", 0, "deliveries before a message is dead-lettered; 0 turns it off")
	flags.IntVar(&f.maxMessages, "max-messages", 0, "messages that can wait; 0 turns it off")
	flags.Var(&f.maxBytes, "max-bytes", "bytes of bodies that can wait, like 64MiB; 0 turns it off")
	flags.IntVar(&f.maxInFlight, "max-in-flight", 0, "messages that can be in flight at once; 0 turns it off")
	flags.IntVar(&f.maxDead, "max-dead", 0, "dead letters that are kept; 0 turns it off")
	flags.DurationVar(&f.dedupWindow, "dedup-window", 0, "how long a key is remembered; 0 turns it off, and keys are refused")
	flags.IntVar(&f.dedupMax, "dedup-max", 0, "how many keys are remembered; 0 turns it off")
	flags.DurationVar(&f.retainReady, "retain-ready", 0, "how long messages are kept before they are dead-lettered; 0 turns it off")
	flags.IntVar(&f.readyCount, "retain-ready-count", 0, "how many messages are kept before the oldest are dead-lettered; 0 turns it off")
	flags.DurationVar(&f.retainDead, "retain-dead", 0, "how long dead letters are kept; 0 turns it off")
	flags.IntVar(&f.deadCount, "retain-dead-count", 0, "how many dead letters are kept before the oldest are removed; 0 turns it off")
	flags.DurationVar(&f.maxHold, "max-hold", 0, "how long a delivery can be held by extending it, at least 10 times its visibility; 0 turns it off")
	flags.DurationVar(&f.ttl, "ttl", 0, "time to live of messages that are sent without one; 0 turns it off")
	flags.DurationVar(&f.aging, "priority-aging", 0, "how long a ready message waits until its level rises by one; 0 turns it off")
	flags.StringVar(&f.groupLimits, "group-limits", "", "limits of strict or fair groups, like \"in-flight=5,rate=10; tenant-a: rate=0.5\"; \"\" removes them")
	flags.BoolVar(&f.dropExpired, "drop-expired", false, "remove messages that are too old or past their time to live, and keep no dead letter")
	flags.StringVar(&f.deadLetterTo, "dead-letter-to", "", "queue that dead letters are sent to")
}

// setters apply one flag each, by its name.
var setters = map[string]func(f *configFlags, to *configBody){
	"shards":             func(f *configFlags, to *configBody) { to.Shards = f.shards },
	"strict-groups":      func(f *configFlags, to *configBody) { to.StrictGroups = f.strictGroups },
	"fair-groups":        func(f *configFlags, to *configBody) { to.FairGroups = f.fairGroups },
	"max-attempts":       func(f *configFlags, to *configBody) { to.MaxAttempts = &f.maxAttempts },
	"max-messages":       func(f *configFlags, to *configBody) { to.MaxMessages = &f.maxMessages },
	"max-bytes":          func(f *configFlags, to *configBody) { n := int(f.maxBytes); to.MaxBytes = &n },
	"max-in-flight":      func(f *configFlags, to *configBody) { to.MaxInFlight = &f.maxInFlight },
	"max-dead":           func(f *configFlags, to *configBody) { to.MaxDead = &f.maxDead },
	"dedup-window":       func(f *configFlags, to *configBody) { to.DedupWindowMS = inMilliseconds(f.dedupWindow) },
	"dedup-max":          func(f *configFlags, to *configBody) { to.DedupMax = &f.dedupMax },
	"retain-ready":       func(f *configFlags, to *configBody) { to.RetainReadyMS = inMilliseconds(f.retainReady) },
	"retain-ready-count": func(f *configFlags, to *configBody) { to.RetainReadyCount = &f.readyCount },
	"retain-dead":        func(f *configFlags, to *configBody) { to.RetainDeadMS = inMilliseconds(f.retainDead) },
	"retain-dead-count":  func(f *configFlags, to *configBody) { to.RetainDeadCount = &f.deadCount },
	"max-hold":           func(f *configFlags, to *configBody) { to.MaxHoldMS = inMilliseconds(f.maxHold) },
	"ttl":                func(f *configFlags, to *configBody) { to.TTLMS = inMilliseconds(f.ttl) },
	"priority-aging":     func(f *configFlags, to *configBody) { to.AgingMS = inMilliseconds(f.aging) },
	"group-limits":       func(f *configFlags, to *configBody) { to.GroupLimits = f.groupLimits },
	"drop-expired":       func(f *configFlags, to *configBody) { to.DropExpired = f.dropExpired },
	"dead-letter-to":     func(f *configFlags, to *configBody) { to.DeadLetterTo = f.deadLetterTo },
}

func inMilliseconds(d time.Duration) *float64 {
	ms := float64(d.Milliseconds())
	return &ms
}

// given reports whether any of these flags is set.
func (f *configFlags) given(flags *pflag.FlagSet) bool {
	for name := range setters {
		if flags.Changed(name) {
			return true
		}
	}
	return false
}

// apply returns the configuration with the given flags applied.
func (f *configFlags) apply(flags *pflag.FlagSet, to configBody) configBody {
	for name, set := range setters {
		if flags.Changed(name) {
			set(f, &to)
		}
	}
	return to
}

// words returns the settings as text, by the names of their flags.
func (c *configBody) words() [][2]string {
	number := func(n *int) string {
		if n == nil || *n == 0 {
			return "off"
		}
		return strconv.Itoa(*n)
	}
	span := func(ms *float64) string {
		if ms == nil || *ms == 0 {
			return "off"
		}
		return time.Duration(*ms * float64(time.Millisecond)).String()
	}
	words := [][2]string{
		{"shards", strconv.Itoa(max(1, c.Shards))},
		{"strict-groups", strconv.FormatBool(c.StrictGroups)},
		{"fair-groups", strconv.FormatBool(c.FairGroups)},
		{"max-attempts", number(c.MaxAttempts)},
		{"max-messages", number(c.MaxMessages)},
		{"max-bytes", number(c.MaxBytes)},
		{"max-in-flight", number(c.MaxInFlight)},
		{"max-dead", number(c.MaxDead)},
		{"dedup-window", span(c.DedupWindowMS)},
		{"dedup-max", number(c.DedupMax)},
		{"retain-ready", span(c.RetainReadyMS)},
		{"retain-ready-count", number(c.RetainReadyCount)},
		{"retain-dead", span(c.RetainDeadMS)},
		{"retain-dead-count", number(c.RetainDeadCount)},
		{"max-hold", span(c.MaxHoldMS)},
		{"ttl", span(c.TTLMS)},
		{"priority-aging", span(c.AgingMS)},
		{"drop-expired", strconv.FormatBool(c.DropExpired)},
	}
	if c.GroupLimits != "" {
		words = append(words, [2]string{"group-limits", c.GroupLimits})
	}
	if c.DeadLetterTo != "" {
		words = append(words, [2]string{"dead-letter-to", c.DeadLetterTo})
	}
	return words
}
