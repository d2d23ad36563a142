package mailboxtest

import (
	"errors"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// An Op is an operation of a backend that can fail.
type Op string

// The operations; those after OpStats are of queues that have the ability.
const (
	// OpAny means all operations.
	OpAny     Op = ""
	OpOpen    Op = "open"
	OpSend    Op = "send"
	OpReceive Op = "receive"
	OpAck     Op = "ack"
	OpNack    Op = "nack"
	// OpExtend is Extend and Release.
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
	OpPause       Op = "pause"
	OpResume      Op = "resume"
	OpUsage       Op = "usage"
)

// A Fault makes calls of the backend fail or take longer.
type Fault struct {
	// Op and Queue select the calls. The zero values mean all operations and all
	// queues.
	Op    Op
	Queue string
	// Err is the error of such a call. A bare code, such as mailbox.ErrUnavailable,
	// becomes a *mailbox.Error with the operation and the queue. Nil means that the
	// call succeeds and is only delayed.
	Err error
	// Late lets the call reach the backend before it fails: the answer is lost, not
	// the request. Messages of a late receive stay in flight until their visibility
	// ends.
	Late bool
	// Delay is added to such a call; it ends with the context.
	Delay time.Duration
	// Every hits every n-th of these calls: the n-th, the 2n-th, …. 0 and 1 mean
	// each.
	Every int
	// Times bounds how often the fault hits. 0 means until it is removed.
	Times int
}

// An activeFault is a fault that was added, and its counts.
type activeFault struct {
	Fault
	calls, hits int
}

func (f *activeFault) concerns(op Op, queue string) bool {
	return (f.Op == OpAny || f.Op == op) && (f.Queue == "" || f.Queue == queue)
}

// hit counts a call that the fault selects and reports whether the fault hits it.
func (f *activeFault) hit() bool {
	f.calls++
	if f.Every > 1 && f.calls%f.Every != 0 || f.Times > 0 && f.hits >= f.Times {
		return false
	}
	f.hits++
	return true
}

// failure returns the error of a fault as a backend would return it.
func failure(err error, op Op, queue string) error {
	if code, ok := err.(driver.Code); ok { //nolint:errorlint // only a bare code becomes an Error
		return &driver.Error{Code: code, Op: string(op), Queue: queue, Err: errInjected}
	}
	return err
}

// errInjected marks an error as one of a Fault, for the reader of a failed test.
var errInjected = errors.New("injected by mailboxtest.Faults")
