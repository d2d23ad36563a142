package capability

import (
	"strings"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/macaroon"
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
	// OpAsk: create reply slots; read, cancel and remove them. A token must name it too.
	// The queues of a token do not limit it: a slot belongs to no queue.
	OpAsk
	// OpAnswer: answer in reply slots, and read their states. A token must name it too.
	OpAnswer
	// OpThrottle: throttle groups of a queue, as the Retry-After of a server asks for. A token
	// must name it too.
	OpThrottle
)

// String returns the word used in tokens: "send", "recv", …
func (o Operation) String() string {
	if !o.valid() {
		return "no operation"
	}
	return macaroon.Operations[o]
}

func (o Operation) valid() bool { return o > 0 && int(o) < len(macaroon.Operations) }

// ParseOperation reads what String returned. The error is ErrInvalid.
func ParseOperation(word string) (Operation, error) {
	if o, ok := macaroon.ParseOperation(word); ok {
		return Operation(o), nil
	}
	return 0, &driver.Error{Code: driver.ErrInvalid, Op: "parse", Field: "operation", Detail: "want one of " + strings.Join(macaroon.Operations[1:], ", ")}
}
