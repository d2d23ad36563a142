package pgbox

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/oklog/ulid/v2"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/backoff"
)

// callTimeout ends a call to a server that does not answer. The connection is closed then, and
// the outcome is unknown.
const callTimeout = 30 * time.Second

// The conditions that functions raise, and those after which a call can be repeated because
// its transaction was rolled back.
const (
	conditionWide     = "MB001" // a message moves to another queue, which takes more locks
	conditionGone     = "MB404" // the queue was deleted
	conditionConflict = "40001"
	conditionDeadlock = "40P01"
)

// The conditions of statements that are not in this session but in another, or already in it: a pooler is in between. No
// call was performed.
var conditionsStatement = []string{"26000", "42P05"}

// A request is one call of a function.
type request struct {
	sql  string
	args []any
	// wide is the position in args that asks for the locks of other queues; -1: there is none.
	wide int
	// repeatable: the call may be made twice.
	repeatable bool
	// named: the statement is worth keeping in the session, if that is possible.
	named bool
}

// call makes a call and passes its rows to read. It repeats calls that have certainly not taken
// effect: for Options.RetryFor without a connection, and otherwise at once. Other failures
// leave the outcome unknown.
func (b *Backend) call(ctx context.Context, r request, read func(pgx.Rows) error) error {
	until := time.Now().Add(b.options.RetryFor)
	for attempt := 1; ; attempt++ {
		err := b.attempt(ctx, r, read)
		if err == nil {
			return nil
		}
		condition, isAnswer := errors.AsType[*pgconn.PgError](err)
		_, isUnreadable := errors.AsType[*answerError](err)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case isAnswer && condition.Code == conditionGone:
			return &driver.Error{Code: driver.ErrNotFound}
		case isAnswer && condition.Code == conditionWide && r.wide >= 0:
			r.args[r.wide] = true
			continue
		case isAnswer && r.named && slices.Contains(conditionsStatement, condition.Code):
			b.unnamed.Store(true)
			r.named = false
			continue
		case isAnswer && (condition.Code == conditionConflict || condition.Code == conditionDeadlock):
		case !isAnswer && !isUnreadable && (r.repeatable || neverSent(err)):
		default:
			return &driver.Error{Code: driver.ErrUnavailable, Err: err}
		}
		if time.Now().After(until) {
			return &driver.Error{Code: driver.ErrUnavailable, Err: err}
		}
		if err := backoff.Pause(ctx, backoff.AfterError(attempt, nil)); err != nil {
			return err
		}
	}
}

// attempt makes a call once.
func (b *Backend) attempt(ctx context.Context, r request, read func(pgx.Rows) error) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	// The description of a statement is kept, and not the statement, which a pooler would
	// keep in another session.
	var mode any = pgx.QueryExecModeCacheDescribe
	if r.named && !b.unnamed.Load() {
		mode = pgx.QueryExecModeCacheStatement
	}
	conn, err := b.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	rows, err := conn.Query(ctx, r.sql, append([]any{mode}, r.args...)...)
	if err != nil {
		return err
	}
	err = read(rows)
	rows.Close()
	if failure := errors.Join(rows.Err(), checkReplicated(conn.Conn().PgConn())); failure != nil {
		return failure
	}
	if err != nil {
		return &answerError{err}
	}
	return nil
}

// An answerError says that an answer cannot be read. The call was performed.
type answerError struct{ err error }

func (e *answerError) Error() string { return "cannot read the answer: " + e.err.Error() }

func (e *answerError) Unwrap() error { return e.err }

// neverSent reports whether a failed call has certainly not reached the server.
func neverSent(err error) bool {
	_, connecting := errors.AsType[*pgconn.ConnectError](err)
	return connecting || pgconn.SafeToRetry(err)
}

// one reads the only row of an answer.
func one(targets ...any) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		if !rows.Next() {
			return pgx.ErrNoRows
		}
		return rows.Scan(targets...)
	}
}

// happened reports what a call has done beside what it was asked for: endings, and messages
// that went to other queues.
func (b *Backend) happened(ctx context.Context, endings, woken *string) {
	if woken != nil {
		for text := range strings.FieldsSeq(*woken) {
			if qid, err := strconv.ParseInt(text, 10, 32); err == nil {
				b.changed(ctx, int32(qid), 1)
			}
		}
	}
	if endings == nil || *endings == "" || !b.observers.Any() {
		return
	}
	for line := range strings.Lines(*endings) {
		if ending, ok := readEnding(strings.TrimSuffix(line, "\n")); ok {
			b.observers.Tell(ending)
		}
	}
}

// readEnding reads a line of the function tell.
func readEnding(line string) (driver.Ending, bool) {
	fields := strings.Split(line, " ")
	if len(fields) != 6 {
		return driver.Ending{}, false
	}
	kinds := map[string]driver.EndingKind{"d": driver.EndingDied, "r": driver.EndingRemoved, "x": driver.EndingDropped, "u": driver.EndingDuplicate}
	queue, err := hex.DecodeString(fields[1])
	if err != nil {
		return driver.Ending{}, false
	}
	id, ok := parseUUID(fields[2])
	if !ok {
		return driver.Ending{}, false
	}
	deliveries, err := strconv.Atoi(fields[4])
	if err != nil {
		return driver.Ending{}, false
	}
	failure, err := hex.DecodeString(fields[5])
	if err != nil {
		return driver.Ending{}, false
	}
	ending := driver.Ending{
		Queue: string(queue), Kind: kinds[fields[0]], Count: 1, ID: id.String(),
		Reason: driver.Reason(fields[3]), Deliveries: deliveries, LastError: strings.ToValidUTF8(string(failure), ""),
	}
	if ending.Kind == driver.EndingDuplicate {
		holder, _ := parseUUID(ending.LastError)
		ending.Reason, ending.LastError = "", fmt.Sprintf(duplicateReasons[fields[3]], holder)
	}
	return ending, true
}

// duplicateReasons say why a message of a transaction was dropped, with the id of the message that has its key.
var duplicateReasons = map[string]string{
	"dedup":    "the dedup key was used for message %s",
	"conflict": "the dedup key was used for message %s, with another body",
	"unique":   "message %s holds the unique key",
	"replaced": "it replaced message %s, which holds the unique key",
}

// parseUUID returns the id that the database prints as a UUID.
func parseUUID(text string) (id ulid.ULID, ok bool) {
	raw, err := hex.DecodeString(strings.ReplaceAll(text, "-", ""))
	if err != nil || len(raw) != len(id) {
		return id, false
	}
	return ulid.ULID(raw), true
}

// micros returns a duration in microseconds, rounded up.
func micros(d time.Duration) int64 { return int64((d + time.Microsecond - 1) / time.Microsecond) }

// dueMicros returns a time in microseconds since 1970, rounded up, and at least 1.
func dueMicros(t time.Time) int64 {
	due := t.UnixMicro()
	if t.After(time.UnixMicro(due)) {
		due++
	}
	return max(due, 1)
}

// wall returns a time of the server in UTC.
func wall(micros int64) time.Time { return time.UnixMicro(micros).UTC() }
