package cli

import (
	"context"
	"strconv"
	"time"

	"github.com/spf13/pflag"
)

// configBody is the configuration of a queue in JSON, here and on the wire. 0
// means the daemon's default, or no bound where it has none.
type configBody struct {
	Shards           int     `json:"shards"`
	StrictGroups     bool    `json:"strict_groups"`
	FairGroups       bool    `json:"fair_groups,omitempty"`
	MaxAttempts      int     `json:"max_attempts"`
	MaxMessages      int     `json:"max_messages"`
	MaxBytes         int     `json:"max_bytes"`
	MaxInFlight      int     `json:"max_in_flight"`
	MaxDead          int     `json:"max_dead"`
	DedupWindowMS    float64 `json:"dedup_window_ms"`
	DedupMax         int     `json:"dedup_max"`
	RetainReadyMS    float64 `json:"retain_ready_ms"`
	RetainReadyCount int     `json:"retain_ready_count"`
	RetainDeadMS     float64 `json:"retain_dead_ms"`
	RetainDeadCount  int     `json:"retain_dead_count"`
	MaxHold          int     `json:"max_hold"`
	DeadLetterTo     string  `json:"dead_letter_to"`
	// What no flag sets, and must not be lost when another setting is changed.
	DropExpired bool   `json:"drop_expired,omitempty"`
	Annotation  string `json:"annotation,omitempty"`
}

// config returns the configuration in force.
func (a *api) config(ctx context.Context, queue string) (configBody, error) {
	var answer struct {
		Config configBody `json:"config"`
	}
	err := a.ask(ctx, question{path: "/v1/queues/get", body: topicBody{queue}}, &answer)
	return answer.Config, err
}

// configFlags are settings of a queue as flags.
type configFlags struct {
	config                               configBody
	maxBytes                             byteSize
	dedupWindow, retainReady, retainDead time.Duration
}

func (f *configFlags) register(flags *pflag.FlagSet) {
	c := &f.config
	flags.IntVar(&c.Shards, "shards", 0, "parts that the queue is split into; order holds within a part")
	flags.BoolVar(&c.StrictGroups, "strict-groups", false, "deliver each group in order, and never two batches of it at a time")
	flags.BoolVar(&c.FairGroups, "fair-groups", false, "let messages of quiet groups go first, so that a noisy one does not delay the others")
	flags.IntVar(&c.MaxAttempts, "max-attempts", 0, "deliveries before a message is a dead letter")
	flags.IntVar(&c.MaxMessages, "max-messages", 0, "messages that can wait")
	flags.Var(&f.maxBytes, "max-bytes", "bytes of bodies that can wait, like 64MiB")
	flags.IntVar(&c.MaxInFlight, "max-in-flight", 0, "messages that can be out at once")
	flags.IntVar(&c.MaxDead, "max-dead", 0, "dead letters that are kept")
	flags.DurationVar(&f.dedupWindow, "dedup-window", 0, "how long a key is remembered")
	flags.IntVar(&c.DedupMax, "dedup-max", 0, "how many keys are remembered")
	flags.DurationVar(&f.retainReady, "retain-ready", 0, "how long messages are kept before they are dead letters")
	flags.IntVar(&c.RetainReadyCount, "retain-ready-count", 0, "how many messages are kept before the oldest are dead letters")
	flags.DurationVar(&f.retainDead, "retain-dead", 0, "how long dead letters are kept")
	flags.IntVar(&c.RetainDeadCount, "retain-dead-count", 0, "how many dead letters are kept before the oldest are removed")
	flags.IntVar(&c.MaxHold, "max-hold", 0, "how many times its visibility a message can be held")
	flags.StringVar(&c.DeadLetterTo, "dead-letter-to", "", "queue that dead letters are sent to")
}

// setters take over one flag each, by its name.
var setters = map[string]func(f *configFlags, to *configBody){
	"shards":             func(f *configFlags, to *configBody) { to.Shards = f.config.Shards },
	"strict-groups":      func(f *configFlags, to *configBody) { to.StrictGroups = f.config.StrictGroups },
	"fair-groups":        func(f *configFlags, to *configBody) { to.FairGroups = f.config.FairGroups },
	"max-attempts":       func(f *configFlags, to *configBody) { to.MaxAttempts = f.config.MaxAttempts },
	"max-messages":       func(f *configFlags, to *configBody) { to.MaxMessages = f.config.MaxMessages },
	"max-bytes":          func(f *configFlags, to *configBody) { to.MaxBytes = int(f.maxBytes) },
	"max-in-flight":      func(f *configFlags, to *configBody) { to.MaxInFlight = f.config.MaxInFlight },
	"max-dead":           func(f *configFlags, to *configBody) { to.MaxDead = f.config.MaxDead },
	"dedup-window":       func(f *configFlags, to *configBody) { to.DedupWindowMS = float64(f.dedupWindow.Milliseconds()) },
	"dedup-max":          func(f *configFlags, to *configBody) { to.DedupMax = f.config.DedupMax },
	"retain-ready":       func(f *configFlags, to *configBody) { to.RetainReadyMS = float64(f.retainReady.Milliseconds()) },
	"retain-ready-count": func(f *configFlags, to *configBody) { to.RetainReadyCount = f.config.RetainReadyCount },
	"retain-dead":        func(f *configFlags, to *configBody) { to.RetainDeadMS = float64(f.retainDead.Milliseconds()) },
	"retain-dead-count":  func(f *configFlags, to *configBody) { to.RetainDeadCount = f.config.RetainDeadCount },
	"max-hold":           func(f *configFlags, to *configBody) { to.MaxHold = f.config.MaxHold },
	"dead-letter-to":     func(f *configFlags, to *configBody) { to.DeadLetterTo = f.config.DeadLetterTo },
}

// given reports whether any setting is named.
func (f *configFlags) given(flags *pflag.FlagSet) bool {
	for name := range setters {
		if flags.Changed(name) {
			return true
		}
	}
	return false
}

// apply changes what is named.
func (f *configFlags) apply(flags *pflag.FlagSet, to configBody) configBody {
	for name, set := range setters {
		if flags.Changed(name) {
			set(f, &to)
		}
	}
	return to
}

// words are the settings for people, by the names of their flags.
func (c *configBody) words() [][2]string {
	number := func(n int) string {
		if n == 0 {
			return "no bound"
		}
		return strconv.Itoa(n)
	}
	span := func(ms float64) string {
		if ms == 0 {
			return "no bound"
		}
		return time.Duration(ms * float64(time.Millisecond)).String()
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
		{"max-hold", number(c.MaxHold)},
	}
	if c.DeadLetterTo != "" {
		words = append(words, [2]string{"dead-letter-to", c.DeadLetterTo})
	}
	return words
}
