package oap

import (
	"errors"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// codes numbers the codes of package driver for the wire. The numbers never
// change: a removed code leaves a gap, and a new one is added at the end.
var codes = [...]driver.Code{
	1:  driver.ErrInvalid,
	2:  driver.ErrTooLarge,
	3:  driver.ErrEncoding,
	4:  driver.ErrFull,
	5:  driver.ErrConflict,
	6:  driver.ErrReceiptExpired,
	7:  driver.ErrSettled,
	8:  driver.ErrNotFound,
	9:  driver.ErrUnsupported,
	10: driver.ErrUnavailable,
	11: driver.ErrIntegrity,
	12: driver.ErrUnauthenticated,
	13: driver.ErrForbidden,
	14: driver.ErrClosed,
	15: driver.ErrReplyAlreadySent,
	16: driver.ErrReplyCancelled,
	17: driver.ErrReplyExpired,
}

const numberOfUnavailable = 10

// maxDetailBytes bounds the texts of an error, so that a batch of errors always
// fits in a frame.
const maxDetailBytes = 512

func numberOf(code driver.Code) byte {
	for number, known := range codes {
		if known == code && number > 0 {
			return byte(number)
		}
	}
	return numberOfUnavailable
}

// StatusOf is the status of a response whose request failed with this code.
func StatusOf(code driver.Code) uint16 {
	switch code {
	case driver.ErrInvalid, driver.ErrEncoding:
		return StatusInvalid
	case driver.ErrTooLarge:
		return StatusTooLarge
	case driver.ErrFull:
		return StatusFull
	case driver.ErrConflict, driver.ErrReplyAlreadySent:
		return StatusConflict
	case driver.ErrReceiptExpired, driver.ErrSettled, driver.ErrReplyCancelled, driver.ErrReplyExpired:
		return StatusGone
	case driver.ErrNotFound:
		return StatusNotFound
	case driver.ErrUnsupported:
		return StatusUnsupported
	case driver.ErrIntegrity:
		return StatusIntegrity
	case driver.ErrUnauthenticated:
		return StatusUnauthenticated
	case driver.ErrForbidden:
		return StatusForbidden
	}
	return StatusUnavailable
}

// ErrorOf returns err as the *driver.Error for the wire. An error of another type,
// or with an unknown code, is ErrUnavailable: its text may reveal more about
// the server than a client should read, so it is not sent.
func ErrorOf(err error) *driver.Error {
	if e, ok := errors.AsType[*driver.Error](err); ok {
		return e
	}
	if code, ok := errors.AsType[driver.Code](err); ok {
		return &driver.Error{Code: code}
	}
	return &driver.Error{Code: driver.ErrUnavailable}
}

// AppendError writes an error without its cause.
func AppendError(dst []byte, e *driver.Error) []byte {
	dst = append(dst, numberOf(e.Code))
	dst = appendText(dst, cut(e.Op))
	dst = appendText(dst, cut(e.Queue))
	dst = appendText(dst, cut(e.MessageID))
	dst = appendText(dst, cut(e.Field))
	dst = appendText(dst, cut(e.Detail))
	return appendDuration(dst, e.RetryAfter)
}

func cut(text string) string { return text[:min(len(text), maxDetailBytes)] }

func (r *reader) failure() *driver.Error {
	number := r.byte()
	if number == 0 || int(number) >= len(codes) {
		r.fail("an error has an unknown code")
		number = 0
	}
	return &driver.Error{
		Code: codes[number], Op: r.text(), Queue: r.text(), MessageID: r.text(),
		Field: r.text(), Detail: r.text(), RetryAfter: r.duration(),
	}
}

// ParseError reads the payload of a response that reports a failure.
func ParseError(payload []byte) (*driver.Error, error) {
	r := reader{rest: payload}
	e := r.failure()
	return e, r.end()
}

// AppendFailures writes the outcome of a batch of which only failures are worth
// telling: their number, then position and error of each. err is what package
// driver returns for a batch, a *driver.BatchError or nil.
func AppendFailures(dst []byte, errs []error) []byte {
	failed := 0
	for _, err := range errs {
		if err != nil {
			failed++
		}
	}
	dst = appendNumber(dst, uint64(failed))
	for i, err := range errs {
		if err != nil {
			dst = appendNumber(dst, uint64(i))
			dst = AppendError(dst, ErrorOf(err))
		}
	}
	return dst
}

// ParseFailures reads the outcome of a batch of n elements: nil if none failed,
// and a *driver.BatchError otherwise. An err that is another is that of the
// payload.
func ParseFailures(payload []byte, n int) (batch *driver.BatchError, err error) {
	r := reader{rest: payload}
	if batch = r.failures(n); r.end() != nil {
		return nil, r.err
	}
	return batch, nil
}

// AppendGranted writes the answer to OpExtendGranted: the failures of the batch, and
// what each position was granted.
func AppendGranted(dst []byte, granted []time.Duration, errs []error) []byte {
	dst = AppendFailures(dst, errs)
	for _, visibility := range granted {
		dst = appendDuration(dst, visibility)
	}
	return dst
}

// ParseGranted reads the answer to an OpExtendGranted of n elements; see
// ParseFailures.
func ParseGranted(payload []byte, n int) (granted []time.Duration, batch *driver.BatchError, err error) {
	r := reader{rest: payload}
	batch = r.failures(n)
	granted = make([]time.Duration, n)
	for i := range granted {
		granted[i] = r.duration()
	}
	if err := r.end(); err != nil {
		return nil, nil, err
	}
	return granted, batch, nil
}

// failures reads what AppendFailures wrote.
func (r *reader) failures(n int) (batch *driver.BatchError) {
	failed := r.count(2)
	if failed > n {
		r.fail("more failures than elements")
	}
	if r.err == nil && failed > 0 {
		batch = &driver.BatchError{Errs: make([]error, n)}
	}
	next := uint64(0)
	for range failed {
		position := r.number()
		failure := r.failure()
		if position < next || position >= uint64(n) {
			r.fail("positions of failures are not in order")
		}
		if r.err != nil {
			return nil
		}
		batch.Errs[position] = failure
		next = position + 1
	}
	return batch
}
