package sabotage

import "maps"

// hidden are the saboteurs that do not show through any wire, and why.
var hidden = map[string]string{
	"clamps-delay":                            checksArguments,
	"clamps-due-times":                        checksArguments,
	"prefers-delays-to-due-times":             checksArguments,
	"takes-two-changes":                       checksArguments,
	"takes-any-due-time":                      checksArguments,
	"takes-any-firing":                        checksArguments,
	"clamps-times-to-live":                    checksArguments,
	"clamps-priorities":                       checksArguments,
	"clamps-changed-priorities":               checksArguments,
	"takes-any-unique-key":                    checksArguments,
	"ignores-unique-keys-in-groups-of-shards": checksArguments,
	"replaces-without-a-unique-key":           checksArguments,
	"drops-unique-keys-of-schedules":          checksArguments,
	"denies-that-it-edits":                    believesTraits,
	"denies-priorities":                       believesTraits,
	"denies-unique-keys":                      believesTraits,
	"hides-queues-with-schedules":             listsNoSchedules,
	"lists-queues-without-schedules":          listsNoSchedules,
	"counts-schedules-once-a-queue":           listsNoSchedules,
	"measures-no-unique-keys":                 "no client reads the usage of a queue",
	"keeps-unique-keys-after-a-late-ack":      takesNoLateAcks,
	"acks-late-what-was-replaced":             takesNoLateAcks,
	"keeps-seals-of-replaced-messages":        "the daemon seals messages, clients do not",
	"names-no-holder-on-move":                 movesNothing,
	"moves-held-keys":                         movesNothing,
	"removes-dead-letters-without-a-trace":    "no client observes the endings of messages",
}

// Reasons why saboteurs do not show.
const (
	checksArguments  = "the daemon checks arguments before the backend does"
	believesTraits   = "the daemon refuses what the traits of its backend deny"
	listsNoSchedules = "the daemon lists no queues by their schedules"
	takesNoLateAcks  = "clients of the daemon make no late acks"
	movesNothing     = "clients of the daemon move no messages to other queues"
)

// NoFirings are the saboteurs that do not show through a wire that has no operation for firings.
func NoFirings() map[string]string {
	const reason = "the daemon fires, not its clients"
	return map[string]string{
		"TIME-1": reason,
		"leaves-firings-undone-after-a-step-of-the-clock": reason,
		"fires-although-the-clock-is-set-back":            reason,
		"messages-of-schedules-do-not-end":                reason,
	}
}

// Merged returns the union of two lists of hidden saboteurs.
func Merged(a, b map[string]string) map[string]string {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}
