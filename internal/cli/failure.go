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
	exitFailed      = 1   // anything that has no code of its own
	exitUsage       = 2   // the command line, or what it names, is wrong
	exitUnreachable = 3   // no daemon answers, or the outcome is unknown
	exitToken       = 4   // no token, or it is not good for this
	exitNotFound    = 5   // no such queue, message or lease
	exitFull        = 6   // a bound was reached; try again later
	exitConflict    = 7   // used or taken before, by something else
	exitEmpty       = 8   // recv: there was no message
	exitExec        = 9   // recv --exec: a command failed, and its message was given back
	exitInterrupted = 130 // as shells say it
)

// A failure is an error for people and scripts: what is wrong, what to do, and the
// exit code.
type failure struct {
	exit     int
	code     string // for scripts
	sentence string // without a capital and a full stop
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

// wrongUse is an error of who typed the command.
func wrongUse(format string, args ...any) error {
	return &failure{exit: exitUsage, code: "usage", sentence: fmt.Sprintf(format, args...)}
}

// quietly is an exit code that needs no words.
type quietly int

func (q quietly) Error() string { return fmt.Sprintf("exit code %d", int(q)) }

// report writes an error to standard error, and returns the exit code.
func (s *shell) report(err error) int {
	if code, ok := errors.AsType[quietly](err); ok {
		return int(code)
	}
	f := s.explain(err)
	if s.global.json {
		line, _ := json.Marshal(struct { // it cannot fail
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

// explain is explain with advice that depends on where the token is from.
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

// adviceOperator says how to get another operator's token for one that is refused.
func adviceOperator(path string, reason capability.Reason) string {
	advice := "this is the operator's token: send the daemon a SIGHUP or restart it, and it writes another to " + path
	if reason == capability.ReasonNotGenuine {
		advice += "; or it is that of another daemon: name the right one with --token-file, or the right daemon with --addr"
	}
	return advice
}

// explain makes a failure of any error.
func explain(err error) *failure {
	if f, ok := errors.AsType[*failure](err); ok {
		return f
	}
	if errors.Is(err, context.Canceled) {
		return &failure{exit: exitInterrupted, code: "interrupted", sentence: "it was interrupted", cause: err}
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

// explainDriver says what an error of the daemon means.
func explainDriver(e *driver.Error) *failure {
	queue := "the queue"
	if e.Queue != "" {
		queue = "the queue " + e.Queue
	}
	switch e.Code {
	case driver.ErrInvalid, driver.ErrUnsupported, driver.ErrEncoding:
		return &failure{exit: exitUsage, code: codeName(e.Code), sentence: "the daemon cannot do that: " + because(e)}
	case driver.ErrTooLarge:
		return &failure{exit: exitUsage, code: "too_large", sentence: "the message is too large: " + because(e), advice: "store large things elsewhere and send where they are"}
	case driver.ErrUnauthenticated:
		return refusedToken(e)
	case driver.ErrForbidden:
		return forbidden(e)
	case driver.ErrNotFound:
		return notFound(e, queue)
	case driver.ErrReceiptExpired, driver.ErrSettled:
		return &failure{exit: exitNotFound, code: "receipt_expired", sentence: "this delivery is over: it was settled before, or its visibility has ended", advice: "receive the message again, with a longer --visibility if the work takes long"}
	case driver.ErrConflict:
		return &failure{exit: exitConflict, code: "conflict", sentence: "that is taken: " + because(e), advice: "a key stands for one body; use another key for another message"}
	case driver.ErrFull:
		return full(e, queue)
	case driver.ErrIntegrity:
		return &failure{exit: exitFailed, code: "integrity", sentence: "what is stored is not what was sent: " + because(e), advice: "look at the disk of the daemon, and for the message in mailbox dlq ls"}
	case driver.ErrUnavailable, driver.ErrClosed, driver.ErrTimeout:
		return &failure{exit: exitUnreachable, code: "unavailable", sentence: "the daemon did not do it, or it is not known whether it did: " + because(e), advice: adviceUnknown}
	}
	return &failure{exit: exitFailed, code: codeName(e.Code), sentence: because(e)}
}

// adviceUnknown is for an outcome that is not known.
const adviceUnknown = "see what is wrong with mailbox doctor; a send with --key can be repeated safely, and a command that only reads has changed nothing"

// forbidden says what the token does not allow, as the daemon said it; an earlier
// daemon says only the reason.
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
		f.sentence, f.advice = "the token is not one of this daemon's", "it may be that of another daemon: name the right one with --token-file, or the right daemon with --addr; or of a key that this daemon has not read yet: send it a SIGHUP"
	case capability.ReasonRevoked:
		f.sentence, f.advice = "the token was revoked", "ask the operator for another"
	case capability.ReasonKeyRetired:
		f.sentence, f.advice = "the key that made the token was retired", "ask the operator for another"
	case capability.ReasonNotYetValid:
		f.advice = "see from when with mailbox cap inspect, and compare clocks with mailbox doctor"
	}
	return f
}

func notFound(e *driver.Error, queue string) *failure {
	f := &failure{exit: exitNotFound, code: "not_found", sentence: "there is no such thing: " + because(e)}
	switch {
	case e.MessageID != "" && !looksLikeID(e.MessageID):
		f.sentence, f.advice = fmt.Sprintf("%.60q is not the id of a message", e.MessageID), adviceID
	case e.MessageID != "":
		f.sentence = fmt.Sprintf("nothing is known of the message %s", e.MessageID)
		f.advice = "messages that were acked long ago are forgotten; otherwise compare the id, and name its queue with --queue"
	case e.Queue != "":
		f.sentence, f.advice = "there is no "+strings.TrimPrefix(queue, "the "), "see which there are with mailbox queues ls"
	}
	return f
}

// detailDisk begins the detail of an error that a daemon without free space on its disk
// answers.
const detailDisk = "the disk is full: "

func full(e *driver.Error, queue string) *failure {
	f := &failure{exit: exitFull, code: "full", sentence: queue + " takes no more for now: " + because(e), advice: "try again later"}
	configure := func(flag string) string {
		return fmt.Sprintf("or raise the limit with mailbox queues configure %s %s N", cmp.Or(e.Queue, "QUEUE"), flag)
	}
	flag := fields[e.Field]
	limit := strings.Replace(e.Detail, "("+e.Field+" ", "("+flag+" ", 1)
	switch {
	case flag == "--max-in-flight":
		f.sentence, f.advice = queue+": "+limit, "ack what is in flight, "+configure(flag)
	case flag == "--max-messages", flag == "--max-bytes":
		f.sentence, f.advice = queue+" takes no more: "+limit, "receive and ack what waits, "+configure(flag)
	case strings.Contains(e.Detail, "dead letters are full"):
		f.sentence, f.advice = queue+": the dead letters are full", "redrive or discard some, "+configure("--max-dead")
	case strings.HasPrefix(e.Detail, detailDisk):
		f.sentence, f.advice, _ = strings.Cut("the daemon's"+strings.TrimPrefix(e.Detail, "the"), "; ")
	}
	// Frames do not tell the reason; no other bound is one of authorization.
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

// because says in few words what an error knows.
func because(e *driver.Error) string {
	parts := make([]string, 0, 4)
	if name, known := fields[e.Field]; known {
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

// fields are what the fields of package driver are called on the command line.
var fields = map[string]string{
	"Body": "the body has", "DedupKey": "the key", "Delay": "--delay", "Group": "--group", "ReplyTo": "--reply-to",
	"CorrelationID": "--correlation-id", "Attributes": "the attributes:", "Visibility": "--visibility", "Wait": "--wait", "Max": "--max",
	"payload_b64": "the body has", "idem_key": "the key", "delay_ms": "--delay", "group": "--group", "reply_to": "--reply-to",
	"correlation_id": "--correlation-id", "attrs": "the attributes:", "visibility_ms": "--visibility", "wait_ms": "--wait",
	"name": "the name of the queue", "topic": "the name of the queue", "MaxDeliveries": "--max-attempts",
	"MaxMessages": "--max-messages", "MaxBytes": "--max-bytes", "MaxInFlight": "--max-in-flight", "max_attempts": "--max-attempts", "max_messages": "--max-messages", "max_bytes": "--max-bytes", "max_in_flight": "--max-in-flight",
	"max_dead": "--max-dead", "dedup_window_ms": "--dedup-window", "dedup_max": "--dedup-max", "max_hold": "--max-hold",
	"retain_ready_ms": "--retain-ready", "retain_ready_count": "--retain-ready-count",
	"retain_dead_ms": "--retain-dead", "retain_dead_count": "--retain-dead-count",
}

// rootCause is the innermost error, which says most in the fewest words.
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

// kinds are the codes of package driver as the daemon spells them on the wire.
var kinds = map[string]driver.Code{
	"invalid": driver.ErrInvalid, "encoding": driver.ErrEncoding, "unsupported": driver.ErrUnsupported,
	"unauthenticated": driver.ErrUnauthenticated, "forbidden": driver.ErrForbidden, "not_found": driver.ErrNotFound,
	"receipt_expired": driver.ErrReceiptExpired, "settled": driver.ErrSettled, "conflict": driver.ErrConflict,
	"too_large": driver.ErrTooLarge, "integrity": driver.ErrIntegrity, "full": driver.ErrFull,
	"unavailable": driver.ErrUnavailable, "closed": driver.ErrClosed, "timeout": driver.ErrTimeout,
}

// codeName is the name of a code for scripts.
func codeName(code driver.Code) string {
	for name, known := range kinds {
		if known == code {
			return name
		}
	}
	return strings.ReplaceAll(string(code), " ", "_")
}
