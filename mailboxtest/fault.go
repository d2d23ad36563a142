package mailboxtest

import (
	"errors"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// An Op is an operation of a backend in which something can go wrong.
type Op string

// The operations; those after OpStats are of queues that have the ability.
const (
	// OpAny stands for all of them.
	OpAny     Op = ""
	OpOpen    Op = "open"
	OpSend    Op = "send"
	OpReceive Op = "receive"
	OpAck     Op = "ack"
	OpNack    Op = "nack"
	// OpExtend is Extend, and Release too.
	OpExtend Op = "extend"
	OpPurge  Op = "purge"
	OpStats  Op = "stats"

	OpDeadLetter  Op = "dead-letter"
	OpDeadLetters Op = "dead-letters"
	OpRedrive     Op = "redrive"
	OpDiscard     Op = "discard"
	OpPurgeDead   Op = "purge dead letters"
	OpPeek        Op = "peek"
	OpMove        Op = "move"
	OpAckLate     Op = "ack late"
	OpExtendLate  Op = "extend late"
	OpForgetDedup Op = "forget dedup keys"
	OpUsage       Op = "usage"
)

// A Fault is something that goes wrong with calls of the backend.
type Fault struct {
	// Op and Queue say which calls it concerns. The zero values mean all
	// operations and all queues.
	Op    Op
	Queue string
	// Err is what such a call returns. A bare code, such as
	// mailbox.ErrUnavailable, is made into a *mailbox.Error with the operation
	// and the queue. Nil means that the call does not fail, and is only
	// delayed.
	Err error
	// Late lets the backend do what it was asked to before the call fails: the
	// answer is lost, not the question. What a late receive leased stays
	// leased until its visibility ends.
	Late bool
	// Delay is how long such a call takes longer; it ends with the context.
	Delay time.Duration
	// Every hits only every n-th of these calls: the n-th, the 2n-th, …. 0 and
	// 1 mean each of them.
	Every int
	// Times is how often the fault hits before it is over. 0 means until it is
	// removed.
	Times int
}

// activeFault is a fault that was added, and how often it was met.
type activeFault struct {
	Fault
	calls, hits int
}

func (f *activeFault) concerns(op Op, queue string) bool {
	return (f.Op == OpAny || f.Op == op) && (f.Queue == "" || f.Queue == queue)
}

// hit counts a call that the fault concerns and reports whether it is hit.
func (f *activeFault) hit() bool {
	f.calls++
	if f.Every > 1 && f.calls%f.Every != 0 || f.Times > 0 && f.hits >= f.Times {
		return false
	}
	f.hits++
	return true
}

// failure is the error of a fault as a backend would return it.
func failure(err error, op Op, queue string) error {
	if code, ok := err.(driver.Code); ok { //nolint:errorlint // only a bare code is dressed up
		return &driver.Error{Code: code, Op: string(op), Queue: queue, Err: errInjected}
	}
	return err
}

// errInjected tells the reader of a failed test where an error came from.
var errInjected = errors.New("injected by mailboxtest.Faults")
