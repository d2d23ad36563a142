package capability

import (
	"strings"

	"github.com/mailboxmq/mailbox/driver"
)

// An Operation is what a request wants to do. The zero Operation is none, and
// no token allows it.
type Operation uint8

// The operations.
const (
	// OpSend: send messages.
	OpSend Operation = iota + 1
	// OpRecv: receive messages.
	OpRecv
	// OpAck: settle a delivery for good.
	OpAck
	// OpNack: give a delivery back.
	OpNack
	// OpExtend: keep a delivery for longer.
	OpExtend
	// OpStats: count messages, without seeing any.
	OpStats
	// OpPeek: look at messages without taking them.
	OpPeek
	// OpPurge: remove all messages of a queue.
	OpPurge
	// OpDLQ: list, redrive, discard and purge dead letters.
	OpDLQ
	// OpAdmin: create, configure, delete and list queues; mint and revoke tokens.
	OpAdmin
	// OpBackup: read everything that the service keeps. A token has it only if it
	// names it: AllOperations does not allow it.
	OpBackup
	// OpAudit: read what was changed through the service, and by which token. It has to
	// be named too.
	OpAudit
)

var operationNames = [...]string{
	OpSend: "send", OpRecv: "recv", OpAck: "ack", OpNack: "nack", OpExtend: "extend",
	OpStats: "stats", OpPeek: "peek", OpPurge: "purge", OpDLQ: "dlq", OpAdmin: "admin",
	OpBackup: "backup", OpAudit: "audit",
}

// String returns the word that stands in tokens: "send", "recv", …
func (o Operation) String() string {
	if !o.valid() {
		return "no operation"
	}
	return operationNames[o]
}

func (o Operation) valid() bool { return o > 0 && int(o) < len(operationNames) }

// ParseOperation reads what String wrote. The error is ErrInvalid.
func ParseOperation(word string) (Operation, error) {
	for o, name := range operationNames {
		if name == word && word != "" {
			return Operation(o), nil
		}
	}
	return 0, &driver.Error{Code: driver.ErrInvalid, Op: "parse", Field: "operation", Detail: "want one of " + strings.Join(operationNames[1:], ", ")}
}

// An operationSet has a bit for each operation.
type operationSet uint32

// first returns an operation of the set, the zero Operation if there is none.
func (s operationSet) first() Operation {
	for o := range Operation(len(operationNames)) {
		if s.has(o) {
			return o
		}
	}
	return 0
}

// allOperations are those that "*" stands for: all that existed when the first tokens
// were minted. Later ones have to be named, so that no token gains an operation.
const allOperations = operationSet(1)<<(OpAdmin+1) - operationSet(1)<<OpSend

func (s operationSet) has(o Operation) bool { return o.valid() && s&(1<<o) != 0 }

// parseOperations reads "*" or a list of words.
func parseOperations(value string) (operationSet, bool) {
	if value == wildcard {
		return allOperations, true
	}
	var set operationSet
	for word := range strings.SplitSeq(value, listSeparator) {
		o, err := ParseOperation(word)
		if err != nil {
			return 0, false
		}
		set |= 1 << o
	}
	return set, true
}

// settling are the operations on one delivery.
const settling operationSet = 1<<OpAck | 1<<OpNack | 1<<OpExtend

// metered are the operations that a quota counts: those that carry messages.
// Settling is not among them, because what was delivered must never be kept
// from being settled.
const metered operationSet = 1<<OpSend | 1<<OpRecv | 1<<OpPeek | 1<<OpDLQ
