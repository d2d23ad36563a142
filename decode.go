package mailbox

import (
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/mailboxmq/mailbox/driver"
)

// A MessageDecoder is a Codec that decides by more than the body: by an
// attribute that names a version, for example. A mailbox whose Codec is one
// asks it, and not Decode. DecodeMessage must neither keep nor change the
// message, which is shared.
type MessageDecoder[T any] interface {
	DecodeMessage(message *driver.Message) (T, error)
}

// decode returns the body of a message. A codec that panics has not decoded it:
// one bad message must not end everybody who receives it.
func (m *Mailbox[T]) decode(message *driver.Message) (body T, err error) {
	defer func() {
		if value := recover(); value != nil {
			err = &panicError{value: value, stack: debug.Stack()}
		}
	}()
	if m.decoder != nil {
		return m.decoder.DecodeMessage(message)
	}
	if len(message.Attributes) > 0 {
		if err := noAnswer(message.Attributes); err != nil {
			return body, err
		}
	}
	return m.codec.Decode(message.Body)
}

// noAnswer returns why a message is not to be taken for a value: replies can
// also be errors, or the end of a stream. A codec that accepts an empty body
// would make an answer of them.
func noAnswer(attributes map[string]string) error {
	if failure := FailureOf(attributes); failure != nil {
		return fmt.Errorf("this is an error reply, which only the codec of package reply reads: %w", failure)
	}
	if _, end := attributes[driver.AttributeReplyEnd]; end {
		return errEndOfStream
	}
	return nil
}

var errEndOfStream = errors.New("this is the end of a stream of replies, which only the codec of package reply reads")

// A panicError is a function of the program's, called for a message, that
// panicked.
type panicError struct {
	value any
	stack []byte
}

// Error returns what it panicked with.
func (e *panicError) Error() string { return fmt.Sprintf("panic: %v", e.value) }

// Unwrap returns the value if that is an error.
func (e *panicError) Unwrap() error {
	err, _ := e.value.(error)
	return err
}
