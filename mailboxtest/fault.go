package mailboxtest

import (
	"errors"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// The operations, as errors name them.
const (
	opAny     = ""
	opOpen    = "open"
	opSend    = "send"
	opReceive = "receive"
	opAck     = "ack"
	opNack    = "nack"
	opExtend  = "extend"
	opPurge   = "purge"
	opStats   = "stats"

	opDeadLetter  = "dead-letter"
	opDeadLetters = "dead-letters"
	opRedrive     = "redrive"
	opDiscard     = "discard"
	opPurgeDead   = "purge dead letters"
	opPeek        = "peek"
	opMove        = "move"
	opAckLate     = "ack late"
	opExtendLate  = "extend late"
	opForgetDedup = "forget dedup keys"
	opThrottle    = "throttle"
	opPause       = "pause"
	opEdit        = "edit"
	opResume      = "resume"
	opUsage       = "usage"
	opFire        = "fire"
	opSchedules   = "list schedules"
)

// operations are all of them, and those of reply stores.
var operations = []string{
	opAny, opOpen, opSend, opReceive, opAck, opNack, opExtend, opPurge, opStats, opDeadLetter, opDeadLetters, opRedrive,
	opDiscard, opPurgeDead, opPeek, opMove, opAckLate, opExtendLate, opForgetDedup, opThrottle, opPause, opEdit, opResume, opUsage,
	opFire, opSchedules,
	opReplyCreate, opReplyResolve, opReplyCancel, opReplyGet, opReplyWait, opReplyConsume, opReplyDelete, opReplySweep,
	opReplyExpired,
}

// A Fault makes calls of the backend fail or take longer.
type Fault struct {
	// Op and Queue select the calls. The zero values mean all operations and all
	// queues. Op is the name that errors have for an operation: "open", "send",
	// "receive", "ack", "nack" (also of Release and PutBack, except that Release is
	// "extend" on a queue without Traits.Release), "extend", "purge", "stats",
	// "dead-letter", "dead-letters", "redrive", "discard", "purge dead letters",
	// "peek", "move", "ack late", "extend late", "forget dedup keys", "pause",
	// "resume", "usage", "fire", "list schedules". Those of a reply store, for which Queue is the id of the
	// slot, are "create slot", "resolve", "cancel", "get", "wait", "consume",
	// "delete", "sweep" and "expired".
	Op    string
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

func (f *activeFault) concerns(op string, queue string) bool {
	return (f.Op == opAny || f.Op == op) && (f.Queue == "" || f.Queue == queue)
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
func failure(err error, op string, queue string) error {
	if code, ok := err.(driver.Code); ok { //nolint:errorlint // only a bare code becomes an Error
		return &driver.Error{Code: code, Op: op, Queue: queue, Err: errInjected}
	}
	return err
}

// errInjected marks an error as one of a Fault, for the reader of a failed test.
var errInjected = errors.New("injected by mailboxtest.Faults")
