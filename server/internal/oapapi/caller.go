package oapapi

import (
	"context"
	"iter"
	"net"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/share"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

// A Caller does what one capability allows: it is the broker as a connection
// sees it. The methods do, and promise, what those of driver.Queue
// and driver.Admin with the same names do.
type Caller interface {
	// Open says what the topic promises, or would if it existed. A Caller that is
	// not a Maker makes the topic.
	Open(ctx context.Context, topic string) (driver.Traits, error)

	// The following answer ErrNotFound for a topic that does not exist.
	Send(ctx context.Context, topic string, msgs []driver.Outgoing) ([]driver.Sent, error)
	Receive(ctx context.Context, topic string, req driver.ReceiveRequest) ([]driver.Delivery, error)
	Ack(ctx context.Context, topic string, receipts []driver.Receipt) error
	Nack(ctx context.Context, topic string, nacks []driver.Nack) error
	Extend(ctx context.Context, topic string, extensions []driver.Extension) ([]time.Duration, error)
	Purge(ctx context.Context, topic string) (removed int, err error)
	Stats(ctx context.Context, topic string) (driver.Stats, error)
	Peek(ctx context.Context, topic string, query driver.Query) iter.Seq2[driver.Peeked, error]

	DeadLetter(ctx context.Context, topic string, burials []driver.DeadLetterRequest) error
	DeadLetters(ctx context.Context, topic string) iter.Seq2[driver.DeadLetter, error]
	Redrive(ctx context.Context, topic string, ids []string, limit int) (moved int, err error)
	Discard(ctx context.Context, topic string, ids []string) (removed int, err error)
	PurgeDead(ctx context.Context, topic string) (removed int, err error)

	ConfigureQueue(ctx context.Context, topic string, config driver.Config) error
	QueueConfig(ctx context.Context, topic string) (driver.Config, error)
	Queues(ctx context.Context) iter.Seq2[string, error]
	DeleteQueue(ctx context.Context, topic string) error
	Ping(ctx context.Context) error
}

// A Sealer is a Caller who can hand out messages with their seals.
type Sealer interface {
	// Sealed returns the same caller, whose deliveries have oap.AttributeSeal.
	Sealed() Caller
}

// A Returner is a Caller whose capability may not be for giving back what it receives.
type Returner interface {
	// Returning returns the same caller, who can, with Extend.
	Returning() Caller
}

// A Binder is a Caller that tells a queue from others that have had its name.
type Binder interface {
	// On returns the same caller, for whom a topic is there only while it is the queue
	// that the binding is bound to.
	On(binding *broker.Binding) Caller
}

// A Maker is a Caller whose Open makes no topics: the first send does.
type Maker interface {
	// Identity reports whether a topic is there, and which queue it is if that can be told.
	Identity(ctx context.Context, topic string) (identity string, exists bool, err error)
	// SendFirst is Send to a topic that was not there when it was opened; it is
	// made if it still is not.
	SendFirst(ctx context.Context, topic string, msgs []driver.Outgoing) ([]driver.Sent, error)
}

// An Owned is a Caller that counts against a share. Others count together.
type Owned interface {
	// Owner names the tenant and the minted token.
	Owner() [2]share.Key
}

func ownerOf(caller Caller) owner {
	if owned, ok := caller.(Owned); ok {
		return owned.Owner()
	}
	return owner{}
}

// An Answerer is a Caller whose receives count against a share of memory until they
// were written.
type Answerer interface {
	// Answering returns the same caller, and what is called when everything that it
	// has received so far was written.
	Answering() (Caller, func())
}

// A Divider is a Caller who knows when messages must not be divided.
type Divider interface {
	// Strict reports whether the topic has strict groups now, or may have: another
	// may have deleted and made it anew since it was opened. It does no I/O.
	Strict(topic string) bool
}

// Authenticate turns the capability of a connection into what it allows. Codes:
// ErrUnauthenticated, ErrForbidden, ErrUnavailable. It must not keep token. from is
// the connection, to be asked where it comes from.
type Authenticate func(ctx context.Context, token []byte, from net.Conn) (Caller, error)
