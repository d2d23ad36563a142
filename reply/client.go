package reply

import (
	"context"
	"errors"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/driver"
)

// DefaultTTL is how long a request may take to be answered, and its answer to
// be read, unless Options say otherwise.
const DefaultTTL = 5 * time.Minute

// tidyWithin bounds what is done for a caller whose context has ended.
const tidyWithin = 5 * time.Second

// Options configure a Client. The zero Options, and nil, are the defaults.
type Options[R any] struct {
	// Codec decodes answers, and must be that of the workers. Nil means JSON.
	Codec mailbox.Codec[R]
	// TTL is how long a slot lives: the time for the request to be answered
	// and for the answer to be read. Futures end with it. 0 means DefaultTTL.
	TTL time.Duration
	// Keep leaves an answer in the store after it was read, for the rest of
	// its time: for others who wait for the same one, and for a client that
	// may die before it has made use of it. Otherwise it is removed at once, or
	// right after by a store that does so without keeping the reader waiting.
	Keep bool
}

// A Client sends requests of type T and gets answers of type R. Make one with
// NewClient. It is safe for concurrent use.
type Client[T, R any] struct {
	requests  *mailbox.Mailbox[T]
	addresses *addresses
	futures   futures[R]
	ttl       time.Duration
}

// NewClient returns a client that sends to requests and finds answers in store,
// which the workers have to know too (mailbox.Options.Replies). Both stay the
// caller's. It does no I/O. With a nil mailbox or store every method of the
// client, and of its futures, returns ErrInvalid.
func NewClient[T, R any](requests *mailbox.Mailbox[T], store driver.ReplyStore, options *Options[R]) *Client[T, R] {
	c := &Client[T, R]{requests: requests, addresses: newAddresses(), ttl: DefaultTTL, futures: futures[R]{store: store}}
	if options != nil {
		c.futures.codec, c.futures.keep = options.Codec, options.Keep
		if options.TTL != 0 {
			c.ttl = options.TTL // an invalid one is refused by the store
		}
	}
	if c.futures.codec == nil {
		c.futures.codec = mailbox.JSON[R]()
	}
	return c
}

// Send sends a request and returns the future of its answer. It makes the slot
// first, so that no answer can be too early, and removes it if the request
// cannot be sent. The options are those of Mailbox.Send, except that
// WithReplyTo has no effect.
//
// With WithDedupKey, a repeat of a request that was sent before is ErrConflict:
// its answer goes to where the first one asked for it. Requests that may have
// to be repeated are for SendAs. Other codes: those of Mailbox.Send, and
// ErrInvalid (the TTL), ErrFull and ErrUnavailable of the store.
func (c *Client[T, R]) Send(ctx context.Context, body T, options ...mailbox.SendOption) (*Future[R], error) {
	id, address := c.addresses.next()
	if err := c.send(ctx, id, address, body, options); err != nil {
		if errors.Is(err, mailbox.ErrUnavailable) || ctx.Err() != nil {
			// The store may have made the slot although it did not say so, and
			// nobody else knows the id.
			c.futures.forget(ctx, id)
		}
		return nil, err
	}
	return &Future[R]{futures: &c.futures, id: id, lives: c.ttl, fresh: true}, nil
}

// SendAs is Send with an id of the caller's choice, which is also the dedup key
// of the request: sending again, because nobody knows whether it worked or
// because the client died and is back, gives a future of the same answer, for
// as long as the slot lives. An id names one request: choose it at random,
// because whoever can guess it can read the answer.
//
// Codes beside those of Send: ErrUnsupported if the mailbox has no dedup keys;
// ErrConflict if the id was used for another body; ErrReplyExpired if the
// request is known and its slot is not, because the answer was read or its time
// is over.
func (c *Client[T, R]) SendAs(ctx context.Context, id string, body T, options ...mailbox.SendOption) (*Future[R], error) {
	all := make([]mailbox.SendOption, 0, len(options)+2)
	all = append(append(all, options...), mailbox.WithDedupKey(id))
	if err := c.send(ctx, id, driver.SlotAddress(id), body, all); err != nil {
		return nil, err
	}
	return &Future[R]{futures: &c.futures, id: id, lives: c.ttl}, nil
}

// send makes a slot and sends a request that names it.
func (c *Client[T, R]) send(ctx context.Context, id, address string, body T, options []mailbox.SendOption) error {
	if c.requests == nil || c.futures.store == nil {
		return &mailbox.Error{Code: mailbox.ErrInvalid, Op: "send", Field: "client", Detail: "has no mailbox or no store"}
	}
	known, err := c.create(ctx, id)
	if err != nil {
		return err
	}
	var sent mailbox.Sent
	if len(options) == 0 { // the usual case, which then needs no list of them
		sent, err = c.requests.Send(ctx, body, mailbox.WithReplyTo(address))
	} else {
		sent, err = c.requests.Send(ctx, body, append(options[:len(options):len(options)], mailbox.WithReplyTo(address))...)
	}
	switch {
	case err == nil && !(sent.Duplicate && !known):
		return nil
	case err == nil:
		err = c.repeated(id, sent)
	}
	if !known {
		c.futures.forget(ctx, id)
	}
	return err
}

// create makes the slot, and reports whether it was there already. One that has
// expired and was not swept yet makes room for the new one.
func (c *Client[T, R]) create(ctx context.Context, id string) (known bool, err error) {
	store := c.futures.store
	err = store.Create(ctx, id, c.ttl)
	if !errors.Is(err, mailbox.ErrConflict) {
		return false, err
	}
	slot, err := store.Get(ctx, id)
	switch {
	case err == nil && slot.State != driver.SlotExpired:
		return true, nil
	case err != nil && !errors.Is(err, mailbox.ErrNotFound):
		return false, err
	}
	if err := store.Delete(ctx, id); err != nil {
		return false, err
	}
	return false, store.Create(ctx, id, c.ttl)
}

// repeated is the error of a request that is there already, and whose answer
// does not go to the slot that was just made for it.
func (c *Client[T, R]) repeated(id string, sent mailbox.Sent) error {
	return &mailbox.Error{
		Code: mailbox.ErrReplyExpired, Op: "send", Queue: c.requests.Name(), MessageID: sent.ID,
		Detail: "the request was sent before, and its answer goes to another slot, or was read, or its time is over",
		Err:    driver.SlotError("send", id, driver.ErrConflict),
	}
}

// Call sends a request and waits for its answer. When it has to give up, because
// ctx has ended or the store does not answer, it cancels the request, so that
// no worker need begin with it, unless the answer has come after all. Codes:
// those of Send and of Future.Wait.
func (c *Client[T, R]) Call(ctx context.Context, body T, options ...mailbox.SendOption) (R, error) {
	future, err := c.Send(ctx, body, options...)
	if err != nil {
		var none R
		return none, err
	}
	answer, err := future.Wait(ctx)
	if err != nil && future.known() == nil {
		return future.abandon(ctx, err)
	}
	return answer, err
}

// Future returns the future of a request that was sent before, maybe by a
// client that has died since, by its id. It does no I/O.
func (c *Client[T, R]) Future(id string) *Future[R] {
	return &Future[R]{futures: &c.futures, id: id}
}
