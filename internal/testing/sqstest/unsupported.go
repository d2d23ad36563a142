package sqstest

import (
	"strings"
	"testing"
)

// Conformance cases, as "ID/title", that the backend for SQS cannot pass, each with the reason.
// Cases that depend on Traits are not listed: there the suite checks the refusal.
var (
	// Unsupported lists the cases that no server with the protocol of SQS lets a client pass.
	Unsupported = map[string]string{
		"ORD-4/a send delay does not hold a group":                               noFIFODelay,
		"ORD-4/a message joins its group when its send delay is over":            noFIFODelay,
		"DLQ-9/a full target stops the move, and nothing is lost":                noBounds,
		"DLQ-9/a target with no room for the bytes stops the move":               noBounds,
		"DLQ-8/a message that dies of a nack moves to the other queue":           noCause,
		"DLQ-8/a message that dies of an expired lease moves to the other queue": noCause,
		"DLQ-8/a queue can be its own target":                                    countsOn,
		"DLQ-8/a target can have a target of its own":                            countsOn,
		"DLQ-8/two queues can be the target of each other":                       countsOn,

		"VIS-1/after a clean restart: a lease holds and its receipt works": onlyTheProcess,
		"ACK-1/after a clean restart: what was acked stays gone":           onlyTheProcess,
	}

	// UnsupportedByAWS lists the cases that fail against AWS but pass against mailboxd.
	UnsupportedByAWS = map[string]string{
		"VIS-6/of many acks and many expiries, each message goes to exactly one":     lateYes,
		"VIS-6/of an ack and a receiver that waits for the expiry, exactly one wins": lateYes,

		"DLQ-8/the move wakes a receiver that waits at the other queue":                    diesLater,
		"DLQ-8/the move happens by the clock alone, without a receiver at the first queue": diesLater,
		"DLQ-8/a message goes to the tail of its own queue":                                diesLater,
		"DLQ-8/a message goes back to its own queue by the clock alone":                    diesLater,
		"DLQ-8/the other queue, deleted and created again, gets dead letters again":        diesLater,
		"DLQ-9/dead-letter attributes move with their message":                             diesLater,
		"DLQ-9/messages without a source queue stay, and hold up no others":                diesLater,

		"DLQ-9/a message can move there and back": "the case expects messages to move in order, and a standard queue of SQS has no order",
	}
)

const (
	noFIFODelay = "FIFO queues of SQS do not support a delay for single messages, as Traits.MaxDelay shows"
	noBounds    = "the case needs a target with a bound, and queues of SQS have no bounds"
	noCause     = "SQS reports the source queue of a dead letter, but not its deliveries or its reason"

	countsOn = "SQS has one delivery count, which continues after a message has moved"

	onlyTheProcess = "a standard queue of SQS honours receipts that were used or superseded; " +
		"only the process that received the message can refuse them, and it is gone"
	lateYes = "a standard queue of SQS accepts an ack that comes too late, whether or not it removes the message; " +
		"the backend then returns ErrUnavailable, but the case expects success or ErrReceiptExpired"
	diesLater = "SQS moves a message that was delivered too often when it would be delivered next, " +
		"not when it is nacked"
)

// SkipListed skips a conformance case that is in one of the lists.
func SkipListed(t testing.TB, lists ...map[string]string) {
	t.Helper()
	_, name, _ := strings.Cut(t.Name(), "/")
	for _, list := range lists {
		for title, reason := range list {
			if strings.ReplaceAll(title, " ", "_") == name {
				t.Skip(reason)
			}
		}
	}
}
