package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
)

// The exit codes. They are documented in docs/cli.md and do not change.
const (
	exitFailed      = 1   // any other error
	exitUsage       = 2   // the command line, or a file that it names, is wrong
	exitUnreachable = 3   // no daemon answers, or the outcome is unknown
	exitToken       = 4   // no token, or it does not allow this
	exitNotFound    = 5   // no such queue, message or lease
	exitFull        = 6   // a limit was reached; try again later
	exitConflict    = 7   // already exists or in use
	exitEmpty       = 8   // recv: there was no message
	exitExec        = 9   // recv --exec: a command failed, and its message was returned
	exitInterrupted = 130 // as in shells
)

// A failure is an error for users and scripts: what is wrong, what to do, and the
// exit code.
type failure struct {
	exit     int
	code     string // for scripts
	sentence string // without a capital letter and a full stop
	advice   string // the same; may be empty
	retry    time.Duration
	cause    error
}

func (f *failure) Error() string {
	if f.advice == "" {
		return f.sentence
	}
	return f.sentence + "; " + f.advice
}

func (f *failure) Unwrap() error { return f.cause }

// usageError returns a failure about wrong use of the command line.
func usageError(format string, args ...any) error {
	return &failure{exit: exitUsage, code: "usage", sentence: fmt.Sprintf(format, args...)}
}

// A silentExit is an exit code without a message.
type silentExit int

func (q silentExit) Error() string { return fmt.Sprintf("exit code %d", int(q)) }

// report writes an error to standard error, and returns the exit code.
func (s *shell) report(err error) int {
	if code, ok := errors.AsType[silentExit](err); ok {
		return int(code)
	}
	f := s.explain(err)
	if s.global.json {
		line, _ := json.Marshal(struct { // cannot fail
			Error failureView `json:"error"`
		}{failureView{f.code, f.sentence, f.advice, f.exit, f.retry.Milliseconds()}})
		s.tell("%s\n", line)
		return f.exit
	}
	text := f.Error()
	if !strings.HasSuffix(text, "?") {
		text += "."
	}
	s.tell("mailbox: %s\n", text)
	return f.exit
}

// failureView is a failure in JSON.
type failureView struct {
	Code         string `json:"code"`
	Message      string `json:"message"`
	Advice       string `json:"advice,omitempty"`
	Exit         int    `json:"exit"`
	RetryAfterMS int64  `json:"retry_after_ms,omitempty"`
}

// explain is the function explain with advice that depends on the source of the token.
func (s *shell) explain(err error) *failure {
	f := explain(err)
	if e, ok := errors.AsType[*driver.Error](err); ok && e.Code == driver.ErrUnauthenticated {
		if c, err := s.credential(); err == nil && s.isOperatorFile(c.source) {
			f.advice = adviceOperator(c.source, capability.ReasonOf(e))
		}
	}
	return f
}

// isOperatorFile reports whether a daemon writes the operator's token to this path.
func (s *shell) isOperatorFile(path string) bool {
	return filepath.Base(path) == operatorTokenFile || path != "" && path == s.environ["MAILBOXD_TOKEN_FILE"]
}

// adviceOperator returns how to replace an operator's token that is refused.
func adviceOperator(path string, reason capability.Reason) string {
	advice := "this is the operator's token: send the daemon a SIGHUP or restart it, and it writes another to " + path
	if reason == capability.ReasonNotGenuine {
		advice += "; or it belongs to another daemon: name the right token with --token-file, or the right daemon with --addr"
	}
	return advice
}

// explain returns the failure for any error.
func explain(err error) *failure {
	if f, ok := errors.AsType[*failure](err); ok {
		return f
	}
	if errors.Is(err, context.Canceled) {
		return &failure{exit: exitInterrupted, code: "interrupted", sentence: "interrupted", cause: err}
	}
	if batch, ok := errors.AsType[*driver.BatchError](err); ok {
		for _, one := range batch.Errs {
			if one != nil {
				err = one
				break
			}
		}
	}
	e, ok := errors.AsType[*driver.Error](err)
	if !ok {
		code, isCode := errors.AsType[driver.Code](err)
		if !isCode {
			return &failure{exit: exitFailed, code: "failed", sentence: err.Error(), cause: err}
		}
		e = &driver.Error{Code: code, Detail: strings.TrimPrefix(err.Error(), string(code)+": ")}
	}
	f := explainDriver(e)
	f.cause, f.retry = err, e.RetryAfter
	return f
}

// explainDriver returns the failure for an error of the daemon.
func explainDriver(e *driver.Error) *failure {
	queue := "the queue"
	if e.Queue != "" {
		queue = "the queue " + e.Queue
	}
	switch e.Code {
	case driver.ErrInvalid, driver.ErrUnsupported, driver.ErrEncoding:
		return &failure{exit: exitUsage, code: codeName(e.Code), sentence: "the daemon cannot do that: " + because(e)}
	case driver.ErrTooLarge:
		return &failure{exit: exitUsage, code: "too_large", sentence: "the message is too large: " + because(e), advice: "store large data elsewhere and send a reference to it"}
	case driver.ErrUnauthenticated:
		return refusedToken(e)
	case driver.ErrForbidden:
		return forbidden(e)
	case driver.ErrNotFound:
		return notFound(e, queue)
	case driver.ErrReceiptExpired, driver.ErrSettled:
		return &failure{exit: exitNotFound, code: "receipt_expired", sentence: "the delivery has ended: it was settled before, or its visibility has expired", advice: "receive the message again, with a longer --visibility if the work takes long"}
	case driver.ErrConflict:
		if e.Op == "edit" {
			return &failure{exit: exitConflict, code: "conflict", sentence: "the message " + e.MessageID + " " + e.Detail}
		}
		if e.Op == opSchedule {
			sentence, advice, _ := strings.Cut(e.Detail, "; ")
			return &failure{exit: exitConflict, code: "conflict", sentence: sentence, advice: advice}
		}
		return &failure{exit: exitConflict, code: "conflict", sentence: "conflict: " + because(e), advice: "a key identifies one body; use another key for another message"}
	case driver.ErrReplyAlreadySent:
		return &failure{exit: exitConflict, code: codeName(e.Code), sentence: "the request with the slot " + strings.TrimPrefix(e.Queue, driver.SlotAddress("")) + " was answered before"}
	case driver.ErrReplyExpired:
		return &failure{exit: exitNotFound, code: codeName(e.Code), sentence: "the request with the slot " + strings.TrimPrefix(e.Queue, driver.SlotAddress("")) + " has expired"}
	case driver.ErrFull:
		return full(e, queue)
	case driver.ErrIntegrity:
		return &failure{exit: exitFailed, code: "integrity", sentence: "the stored message is damaged: " + because(e), advice: "check the disk of the daemon, and look for the message in mailbox dlq ls"}
	case driver.ErrUnavailable, driver.ErrClosed, driver.ErrTimeout:
		return &failure{exit: exitUnreachable, code: "unavailable", sentence: "the request failed, or its outcome is unknown: " + because(e), advice: adviceUnknown}
	}
	return &failure{exit: exitFailed, code: codeName(e.Code), sentence: because(e)}
}

// adviceUnknown is the advice for an unknown outcome.
const adviceUnknown = "see what is wrong with mailbox doctor; a send with --key can be repeated safely, and a command that only reads has changed nothing"

// forbidden says what the token does not allow, in the words of the daemon; an earlier
// daemon sends only the reason.
func forbidden(e *driver.Error) *failure {
	f := &failure{
		exit: exitToken, code: "forbidden", sentence: "the token does not allow this" + inParentheses(string(capability.ReasonOf(e)), e.Queue),
		advice: "ask for another token; mailbox cap inspect shows all that this one allows",
	}
	if strings.HasPrefix(e.Detail, "token ") {
		f.sentence = "the " + e.Detail
	}
	return f
}

func refusedToken(e *driver.Error) *failure {
	f := &failure{exit: exitToken, code: "unauthenticated", sentence: "the daemon does not accept the token", advice: "see what is wrong with it with mailbox doctor"}
	if strings.HasPrefix(e.Detail, "token ") {
		f.sentence, f.advice, _ = strings.Cut("the "+e.Detail, "; ")
	}
	switch capability.ReasonOf(e) {
	case capability.ReasonExpired:
		f.advice = "ask the operator for another, who makes it with mailbox cap mint"
	case capability.ReasonNotGenuine:
		f.sentence, f.advice = "the token was not made with the keys of this daemon", "if it belongs to another daemon, name the right token with --token-file or the right daemon with --addr; if its key is new, send the daemon a SIGHUP"
	case capability.ReasonRevoked:
		f.sentence, f.advice = "the token was revoked", "ask the operator for another"
	case capability.ReasonKeyRetired:
		f.sentence, f.advice = "the key that signed the token was retired", "ask the operator for another"
	case capability.ReasonNotYetValid:
		f.advice = "see from when with mailbox cap inspect, and compare clocks with mailbox doctor"
	}
	return f
}

func notFound(e *driver.Error, queue string) *failure {
	f := &failure{exit: exitNotFound, code: "not_found", sentence: "not found: " + because(e)}
	switch {
	case e.MessageID != "" && !looksLikeID(e.MessageID):
		f.sentence, f.advice = fmt.Sprintf("%.60q is not the id of a message", e.MessageID), adviceID
	case e.MessageID != "" && e.Op == "edit":
		f.sentence, f.advice = fmt.Sprintf("the message %s is not waiting in %s", e.MessageID, e.Queue), "list the waiting ones with mailbox peek "+e.Queue
	case e.MessageID != "":
		f.sentence = fmt.Sprintf("the message %s is not known", e.MessageID)
		f.advice = "messages that were acked long ago are forgotten; otherwise compare the id, and name its queue with --queue"
	case strings.HasPrefix(e.Queue, driver.SlotAddress("")):
		f.sentence, f.advice = "the request with the slot "+strings.TrimPrefix(e.Queue, driver.SlotAddress(""))+" is not known", "list requests with mailbox requests ls"
	case e.Op == opSchedule:
		f.sentence, f.advice = "there is "+e.Detail+" of "+queue, "see which there are with mailbox schedules ls "+e.Queue
	case e.Queue != "":
		f.sentence, f.advice = "there is no "+strings.TrimPrefix(queue, "the "), "see which there are with mailbox queues ls"
	}
	return f
}

// detailDisk begins the detail of the error of a daemon whose disk is full.
const detailDisk = "the disk is full: "

func full(e *driver.Error, queue string) *failure {
	f := &failure{exit: exitFull, code: "full", sentence: queue + " accepts no more for now: " + because(e), advice: "try again later"}
	configure := func(flag string) string {
		return fmt.Sprintf("or raise the limit with mailbox queues configure %s %s N", cmp.Or(e.Queue, "QUEUE"), flag)
	}
	flag := fields[e.Field]
	limit := strings.Replace(e.Detail, "("+e.Field+" ", "("+flag+" ", 1)
	switch {
	case flag == "--max-in-flight":
		f.sentence, f.advice = queue+": "+limit, "ack messages in flight, "+configure(flag)
	case flag == "--max-messages", flag == "--max-bytes":
		f.sentence, f.advice = queue+" accepts no more: "+limit, "receive and ack waiting messages, "+configure(flag)
	case strings.Contains(e.Detail, "dead letters are full"):
		f.sentence, f.advice = queue+": the dead letters are full", "redrive or discard some, "+configure("--max-dead")
	case strings.Contains(e.Detail, "schedules"):
		f.sentence, f.advice = queue+" takes no more schedules: "+e.Detail, "remove some with mailbox schedules rm"
	case strings.HasPrefix(e.Detail, detailDisk):
		f.sentence, f.advice, _ = strings.Cut("the daemon's"+strings.TrimPrefix(e.Detail, "the"), "; ")
	}
	// OAP/1 does not send the reason; no other limit is one of authorization.
	if errors.Is(e, capability.ReasonQuota) || e.Op == "authorize" {
		f.sentence, f.advice = "the rate that the token allows is used up", "go slower, or ask for a token with a higher rate"
		if strings.HasPrefix(e.Detail, "the token's quota") {
			f.sentence = e.Detail
		}
	}
	if e.RetryAfter > 0 {
		f.advice += fmt.Sprintf(" (not before %v)", max(e.RetryAfter.Round(time.Millisecond), time.Millisecond))
	}
	return f
}

// because returns the cause of an error in a few words.
func because(e *driver.Error) string {
	parts := make([]string, 0, 4)
	if e.Op == opSchedule && e.Field == "name" {
		parts = append(parts, "the name of the schedule:")
	} else if name, known := fields[e.Field]; known {
		parts = append(parts, name)
	} else if e.Field != "" {
		parts = append(parts, e.Field)
	}
	if e.Detail != "" {
		parts = append(parts, e.Detail)
	}
	if len(parts) == 0 {
		parts = append(parts, string(e.Code))
	}
	text := strings.Join(parts, " ")
	if e.Err != nil {
		text += " (" + rootCause(e.Err) + ")"
	}
	return text
}

// opSchedule is the operation in errors about a schedule.
const opSchedule = "schedule"

// fields maps the fields of package driver and of the HTTP API to flags.
var fields = map[string]string{
	"Body": "the body has", "DedupKey": "the key", "UniqueKey": "--unique", "Replace": "--replace", "Delay": "--delay", "DeliverAt": "--at", "TTL": "--ttl", "Priority": "the priority", "Group": "--group", "ReplyTo": "--reply-to",
	"CorrelationID": "--correlation-id", "Attributes": "the attributes:", "Visibility": "--visibility", "Wait": "--wait", "Max": "--max",
	"payload_b64": "the body has", "idem_key": "the key", "unique_key": "--unique", "replace": "--replace", "delay_ms": "--delay", "deliver_at": "--at", "ttl_ms": "--ttl", "priority": "the priority", "priority_aging_ms": "--priority-aging", "group_limits": "--group-limits", "group": "--group", "reply_to": "--reply-to",
	"correlation_id": "--correlation-id", "attrs": "the attributes:", "visibility_ms": "--visibility", "wait_ms": "--wait",
	"name": "the name of the queue", "topic": "the name of the queue", "MaxDeliveries": "--max-attempts",
	"MaxMessages": "--max-messages", "MaxBytes": "--max-bytes", "MaxInFlight": "--max-in-flight", "max_attempts": "--max-attempts", "max_messages": "--max-messages", "max_bytes": "--max-bytes", "max_in_flight": "--max-in-flight",
	"max_dead": "--max-dead", "dedup_window_ms": "--dedup-window", "dedup_max": "--dedup-max", "max_hold": "--max-hold",
	"cron": "--cron", "every_ms": "--every", "zone": "--zone", "catch_up": "--catch-up",
	"retain_ready_ms": "--retain-ready", "retain_ready_count": "--retain-ready-count",
	"retain_dead_ms": "--retain-dead", "retain_dead_count": "--retain-dead-count",
}

// rootCause returns the innermost error, which says the most in the fewest words.
func rootCause(err error) string {
	for {
		if e, ok := err.(*driver.Error); ok && e.Err == nil { //nolint:errorlint // the chain is walked here
			return because(e)
		}
		inner := errors.Unwrap(err)
		if inner == nil {
			return err.Error()
		}
		err = inner
	}
}

func inParentheses(parts ...string) string {
	var given []string
	for _, part := range parts {
		if part != "" {
			given = append(given, strings.ReplaceAll(part, "_", " "))
		}
	}
	if len(given) == 0 {
		return ""
	}
	return " (" + strings.Join(given, ", ") + ")"
}

// kinds maps the codes on the wire to those of package driver.
var kinds = map[string]driver.Code{
	"invalid": driver.ErrInvalid, "encoding": driver.ErrEncoding, "unsupported": driver.ErrUnsupported,
	"unauthenticated": driver.ErrUnauthenticated, "forbidden": driver.ErrForbidden, "not_found": driver.ErrNotFound,
	"receipt_expired": driver.ErrReceiptExpired, "settled": driver.ErrSettled, "conflict": driver.ErrConflict,
	"too_large": driver.ErrTooLarge, "integrity": driver.ErrIntegrity, "full": driver.ErrFull,
	"unavailable": driver.ErrUnavailable, "closed": driver.ErrClosed, "timeout": driver.ErrTimeout,
	"reply_already_sent": driver.ErrReplyAlreadySent, "reply_cancelled": driver.ErrReplyCancelled, "reply_expired": driver.ErrReplyExpired,
}

// codeName returns the name of a code for scripts.
func codeName(code driver.Code) string {
	for name, known := range kinds {
		if known == code {
			return name
		}
	}
	return strings.ReplaceAll(string(code), " ", "_")
}
