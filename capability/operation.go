package capability

import (
	"strings"

	"github.com/mailboxmq/mailbox/driver"
)

// An Operation is what a request asks for. No token allows the zero Operation.
type Operation uint8

// The operations.
const (
	// OpSend: send messages.
	OpSend Operation = iota + 1
	// OpRecv: receive messages.
	OpRecv
	// OpAck: acknowledge a delivery.
	OpAck
	// OpNack: return a delivery to its queue.
	OpNack
	// OpExtend: extend the lease of a delivery.
	OpExtend
	// OpStats: read counts of messages, without their bodies.
	OpStats
	// OpPeek: read messages without receiving them.
	OpPeek
	// OpPurge: remove all messages of a queue.
	OpPurge
	// OpDLQ: list, redrive, discard and purge dead letters.
	OpDLQ
	// OpAdmin: create, configure, delete and list queues; mint and revoke tokens.
	OpAdmin
	// OpBackup: read everything that the service stores. A token must name it:
	// AllOperations does not include it.
	OpBackup
	// OpAudit: read the audit log: changes made through the service, and by which
	// token. A token must name it too.
	OpAudit
)

var operationNames = [...]string{
	OpSend: "send", OpRecv: "recv", OpAck: "ack", OpNack: "nack", OpExtend: "extend",
	OpStats: "stats", OpPeek: "peek", OpPurge: "purge", OpDLQ: "dlq", OpAdmin: "admin",
	OpBackup: "backup", OpAudit: "audit",
}

// String returns the word used in tokens: "send", "recv", …
func (o Operation) String() string {
	if !o.valid() {
		return "no operation"
	}
	return operationNames[o]
}

func (o Operation) valid() bool { return o > 0 && int(o) < len(operationNames) }

// ParseOperation reads what String returned. The error is ErrInvalid.
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

// first returns the first operation of the set, or the zero Operation if the set is
// empty.
func (s operationSet) first() Operation {
	for o := range Operation(len(operationNames)) {
		if s.has(o) {
			return o
		}
	}
	return 0
}

// allOperations are the operations that "*" allows: those that existed when the first
// tokens were minted. Later ones must be named, so that no existing token gains an
// operation.
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

// settleOperations are the operations on one delivery.
const settleOperations operationSet = 1<<OpAck | 1<<OpNack | 1<<OpExtend

// meteredOperations are the operations that a quota counts: those that carry
// messages. A quota never delays settling, so that a delivery can always be settled.
const meteredOperations operationSet = 1<<OpSend | 1<<OpRecv | 1<<OpPeek | 1<<OpDLQ
