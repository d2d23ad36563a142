// Package checkup says what is wrong with a daemon, from what it reports about itself: for the page Health of the
// console, and for mailbox doctor. It does no I/O.
package checkup

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// The results of a check.
const (
	OK      = "ok"
	Warning = "warning"
	Failed  = "failed"
	Skipped = "skipped"
)

// A Finding is the result of one check, also in JSON.
type Finding struct {
	Check   string `json:"check"`
	Status  string `json:"status"`
	Message string `json:"message"`
	Advice  string `json:"advice,omitempty"`
}

// advice says what to do about each failed condition of readiness.
var advice = map[string]string{
	"listeners_bound":  "wait until it has started",
	"cap_authority_ok": "its key file is empty: restore it, or remove it and let the daemon make a new one",
	"not_draining":     "it is being stopped: start it again, or use another",
	"shards_ready":     "its backend does not accept writes: check its log, and its disk, Redis or PostgreSQL",
	"clock_skew_ok":    "its clock was set back: correct it, and restart the daemon",
}

// Advice says what to do about a failed condition of readiness.
func Advice(condition string) string { return advice[condition] }

// Readiness explains the failed conditions of readiness, and the profile of a daemon that is ready.
func Readiness(missing []string, profile string) []Finding {
	if len(missing) == 0 {
		return []Finding{{"readiness", OK, fmt.Sprintf("the daemon is ready (%s)", profile), ""}}
	}
	var all []Finding
	for _, name := range missing {
		all = append(all, Finding{"readiness", Failed, "the daemon is not ready: " + name, advice[name]})
	}
	return all
}

// Notes explains those notes of a daemon that tell of a problem.
func Notes(notes map[string]string) []Finding {
	var all []Finding
	warn := func(check, advice, message string) {
		all = append(all, Finding{check, Warning, message, advice})
	}
	if notes["dlq_profile"] == "ephemeral" {
		warn("durability", "for messages that must not be lost use a backend on disk, or a Redis with appendonly yes and maxmemory-policy noeviction, or a PostgreSQL with fsync on", "messages and dead letters do not survive a restart of the backend")
	}
	if problem := notes["replication"]; problem != "" {
		warn("standby", "check the standby and its connection: until then a failover can lose confirmed messages", problem)
	}
	if full := notes["dead_letters_full"]; full != "" {
		warn("dead letters", "redrive or discard some, or raise the limit with mailbox queues configure QUEUE --max-dead N", full)
	}
	if where := notes["plaintext"]; where != "" {
		warn("plaintext", "set tls.cert and tls.key, unless the network protects them", "tokens and messages travel in plaintext "+where)
	}
	if problem := notes["sqs"]; problem != "" {
		warn("sqs", "require signatures, unless the network admits only clients that may do everything", problem)
	}
	return all
}

// Disk compares the free space that a daemon reports with its reserve. ok is false if it reports none.
func Disk(notes map[string]string) (f Finding, ok bool) {
	var told [3]uint64
	for i, name := range []string{"disk_volume_bytes", "disk_free_bytes", "disk_reserve_bytes"} {
		n, err := strconv.ParseUint(notes[name], 10, 64)
		if err != nil || told[0] == 0 && i > 0 {
			return f, false
		}
		told[i] = n
	}
	total, free, reserve := told[0], told[1], told[2]
	f = Finding{"disk", OK, fmt.Sprintf("%s of %s are free, and %s are kept in reserve", Bytes(free), Bytes(total), Bytes(reserve)), ""}
	switch {
	case free < reserve:
		f.Status, f.Advice = Failed, "free space on the volume, or set a smaller --disk-reserve: sends are refused until then"
	case free < 2*reserve:
		f.Status, f.Advice = Warning, "free space: sends are refused when less than the reserve is free"
	}
	return f, true
}

// Bytes returns a number of bytes as text, in the unit that fits.
func Bytes(n uint64) string {
	if n < 1<<10 {
		return fmt.Sprintf("%d B", n)
	}
	value, unit := float64(n)/(1<<10), 0
	for value >= 1<<10 && unit < 3 {
		value, unit = value/(1<<10), unit+1
	}
	return strconv.FormatFloat(value, 'f', 1, 64) + " " + []string{"KiB", "MiB", "GiB", "TiB"}[unit]
}

// expiryWarning is how long before an expiry a check warns.
const expiryWarning = 14 * 24 * time.Hour

// Expiry checks when something ends, as "the token" does; advice says how it is renewed.
func Expiry(check, what, advice string, ends, now time.Time) Finding {
	f := Finding{check, OK, what + " is valid until " + ends.UTC().Format(time.RFC3339), ""}
	switch left := ends.Sub(now); {
	case left <= 0:
		f = Finding{check, Failed, what + " has expired", advice}
	case left < expiryWarning:
		f = Finding{check, Warning, what + " expires at " + ends.UTC().Format(time.RFC3339), advice}
	}
	return f
}

// legacyNoLimit is the delivery limit that earlier daemons gave to queues created over the SQS protocol, which have
// no limit.
const legacyNoLimit = 1 << 30

// LimitsDeliveries reports whether a delivery limit is one. 0 and driver.Off mean none.
func LimitsDeliveries(limit int) bool { return limit > 0 && limit < legacyNoLimit }

// nearBound is the part of a bound from which on a queue is near it.
const nearBound = 0.8

// Queues gathers the problems of queues.
type Queues struct{ unlimited, unbounded, near []string }

// Add checks the configuration and the figures of a queue.
func (q *Queues) Add(name string, c *driver.Config, stats *driver.Stats) {
	if !LimitsDeliveries(c.MaxDeliveries) {
		q.unlimited = append(q.unlimited, name)
	}
	if c.MaxDead <= 0 && c.RetainDead.Age <= 0 && c.RetainDead.Count <= 0 && c.DeadLetterTo == "" {
		q.unbounded = append(q.unbounded, name)
	}
	for _, bound := range []struct {
		what     string
		used, of int
	}{{"messages", stats.Waiting(), c.MaxMessages}, {"in flight", stats.InFlight, c.MaxInFlight}, {"dead letters", stats.Dead, c.MaxDead}} {
		if bound.of > 0 && float64(bound.used) >= nearBound*float64(bound.of) {
			q.near = append(q.near, fmt.Sprintf("%s (%s: %d of %d)", name, bound.what, bound.used, bound.of))
		}
	}
}

// Findings returns what is wrong with the queues.
func (q *Queues) Findings() []Finding {
	return []Finding{
		Limits(q.unlimited),
		listed("dead letters", q.unbounded, "queue", "without a bound of dead letters", "set one with mailbox queues configure QUEUE --max-dead N", "the dead letters of every queue are bounded"),
		listed("bounds", q.near, "bound", "used to 80 % or more", "let workers catch up, or raise it with mailbox queues configure: a full queue refuses sends", "no queue is near a bound"),
	}
}

// Limits is the finding about the queues without a delivery limit: there a message that kills its worker is delivered
// again without end.
func Limits(unlimited []string) Finding {
	return listed("limits", unlimited, "queue", "without a delivery limit", "set one with mailbox queues configure QUEUE --max-attempts 5, unless they must not have one", "every queue has a delivery limit")
}

// maxListed bounds the names in a finding of the console; the others are counted.
const maxListed = 50

// listed is a warning about those that are named, or well.
func listed(check string, names []string, noun, what, advice, well string) Finding {
	if len(names) == 0 {
		return Finding{check, OK, well, ""}
	}
	if len(names) > 1 {
		noun += "s"
	}
	more := ""
	if n := len(names) - maxListed; n > 0 {
		more = fmt.Sprintf(" and %d more", n)
	}
	return Finding{check, Warning, fmt.Sprintf("%d %s %s: %s%s", len(names), noun, what, strings.Join(names[:min(len(names), maxListed)], ", "), more), advice}
}
