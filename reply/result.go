package reply

import (
	"errors"
	"strconv"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/replyslot"
)

// A Result is a message of a reply mailbox: an answer, an error, or the end of a
// stream.
type Result[R any] struct {
	// RequestID is the correlation id of the request, or its message id if it
	// had none.
	RequestID string
	// Value is the answer. It is the zero R if Err or End is set.
	Value R
	// Err is a *mailbox.Failure if the request failed.
	Err error
	// End says that nothing follows in a stream.
	End bool
	// Index numbers the parts of a stream, its end included, from 0. It is -1
	// for other replies.
	Index int
}

// Results returns the codec for reply mailboxes. inner decodes the answers; nil means
// JSON.
//
//	replies, err := mailbox.Open(ctx, backend, "replies",
//		&mailbox.Options[reply.Result[Answer]]{Codec: reply.Results[Answer](nil)})
//
// To a mailbox with another codec, error replies and ends of streams are undecodable
// bodies, so that it does not mistake them for answers.
func Results[R any](inner mailbox.Codec[R]) mailbox.Codec[Result[R]] {
	if inner == nil {
		inner = mailbox.JSON[R]()
	}
	return resultCodec[R]{inner}
}

type resultCodec[R any] struct{ inner mailbox.Codec[R] }

var errOnlyValues = errors.New("cannot send an error or the end of a stream: reply to a message instead")

func (c resultCodec[R]) ContentType() string { return c.inner.ContentType() }

// Encode encodes the value. The other fields of a result travel in attributes, which
// a codec does not set.
func (c resultCodec[R]) Encode(result Result[R]) ([]byte, error) {
	if result.Err != nil || result.End {
		return nil, errOnlyValues
	}
	return c.inner.Encode(result.Value)
}

// Decode decodes a body without its message.
func (c resultCodec[R]) Decode(data []byte) (Result[R], error) {
	value, err := c.inner.Decode(data)
	return Result[R]{Value: value, Index: -1}, err
}

// DecodeMessage decodes a message, attributes included.
func (c resultCodec[R]) DecodeMessage(message *driver.Message) (Result[R], error) {
	result := Result[R]{RequestID: message.CorrelationID, Index: -1}
	if text, numbered := message.Attributes[replyslot.AttributeIndex]; numbered {
		index, err := strconv.ParseUint(text, 10, 31)
		if err != nil {
			return result, err
		}
		result.Index = int(index)
	}
	if failure := mailbox.FailureOf(message.Attributes); failure != nil {
		result.Err = failure
		return result, nil
	}
	if _, end := message.Attributes[replyslot.AttributeEnd]; end {
		result.End = true
		return result, nil
	}
	value, err := c.inner.Decode(message.Body)
	result.Value = value
	return result, err
}
