package reply

import (
	"context"
	"errors"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/driver"
)

// defaultTTL is the default time for a request to be answered and its answer to be
// read.
const defaultTTL = 5 * time.Minute

// cleanupTimeout bounds the cleanup after the caller's context has ended.
const cleanupTimeout = 5 * time.Second

// Options configure a Client. The zero Options, and nil, are the defaults.
type Options[R any] struct {
	// Codec decodes answers. It must match that of the workers. Nil means JSON.
	Codec mailbox.Codec[R]
	// TTL is how long a slot lives: the time for the request to be answered
	// and for the answer to be read. Futures end with it. 0 means 5 minutes.
	TTL time.Duration
	// Keep leaves an answer in the store after it was read, until its TTL: for
	// others that wait for the same answer, and for a client that may crash before
	// it has used it. Otherwise the answer is removed at once, or shortly after by a
	// store that removes in the background.
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
// which the workers must use too (mailbox.Options.Replies). The caller closes both.
// It does no I/O. With a nil mailbox or store every method of the client, and of its
// futures, returns ErrInvalid.
func NewClient[T, R any](requests *mailbox.Mailbox[T], store driver.ReplyStore, options *Options[R]) *Client[T, R] {
	c := &Client[T, R]{requests: requests, addresses: newAddresses(), ttl: defaultTTL, futures: futures[R]{store: store}}
	if options != nil {
		c.futures.codec, c.futures.keep = options.Codec, options.Keep
		if options.TTL != 0 {
			c.ttl = options.TTL // the store refuses an invalid one
		}
	}
	if c.futures.codec == nil {
		c.futures.codec = mailbox.JSON[R]()
	}
	return c
}

// Send sends a request and returns the future of its answer. It creates the slot
// first, or in one step with the request, so that no answer can come too early, and
// removes it if the request cannot be sent. The options are those of Mailbox.Send,
// except that WithReplyTo has no effect.
//
// With WithDedupKey, a repeat of an earlier request is ErrConflict: its answer goes
// to the slot of the first. Use SendAs for requests that may be repeated. Other
// codes: those of Mailbox.Send, and ErrInvalid (the TTL), ErrFull and ErrUnavailable
// of the store.
func (c *Client[T, R]) Send(ctx context.Context, body T, options ...mailbox.SendOption) (*Future[R], error) {
	id, address := c.addresses.next()
	if err := c.send(ctx, id, address, true, body, options); err != nil {
		if errors.Is(err, mailbox.ErrUnavailable) || ctx.Err() != nil {
			// The store may have created the slot although the call failed, and no
			// other caller knows the id.
			c.futures.forget(ctx, id)
		}
		return nil, err
	}
	return &Future[R]{futures: &c.futures, id: id, lives: c.ttl, fresh: true}, nil
}

// SendAs is Send with an id that the caller chooses, which is also the dedup key of
// the request: sending again, because the first result is unknown or the client has
// restarted, returns a future of the same answer, for as long as the slot lives. An
// id names one request. Choose it at random: a client that guesses it can read the
// answer.
//
// Codes beside those of Send: ErrUnsupported if the mailbox has no dedup keys;
// ErrConflict if the id was used for another body; ErrReplyExpired if the request
// is known and its slot is not, because the answer was read or the TTL is over.
func (c *Client[T, R]) SendAs(ctx context.Context, id string, body T, options ...mailbox.SendOption) (*Future[R], error) {
	all := make([]mailbox.SendOption, 0, len(options)+2)
	all = append(append(all, options...), mailbox.WithDedupKey(id))
	if err := c.send(ctx, id, driver.SlotAddress(id), false, body, all); err != nil {
		return nil, err
	}
	return &Future[R]{futures: &c.futures, id: id, lives: c.ttl}, nil
}

// send creates a slot and sends a request with its address. fresh says that the id was
// made for this request.
func (c *Client[T, R]) send(ctx context.Context, id, address string, fresh bool, body T, options []mailbox.SendOption) error {
	if c.requests == nil || c.futures.store == nil {
		return &mailbox.Error{Code: mailbox.ErrInvalid, Op: "send", Field: "client", Detail: "has no mailbox or no store"}
	}
	sending, known, created, err := c.create(ctx, id, fresh)
	if err != nil {
		return err
	}
	var sent mailbox.Sent
	if len(options) == 0 { // the usual case, without a new slice
		sent, err = c.requests.Send(sending, body, mailbox.WithReplyTo(address))
	} else {
		sent, err = c.requests.Send(sending, body, append(options[:len(options):len(options)], mailbox.WithReplyTo(address))...)
	}
	switch {
	case err == nil && !created():
		err = &mailbox.Error{Code: mailbox.ErrUnavailable, Op: "send", Queue: c.requests.Name(), Detail: "a hook has dropped the context of the send, and with it the reply slot"}
	case err == nil && !(sent.Duplicate && !known):
		return nil
	case err == nil:
		err = c.repeated(id, sent)
	}
	if !known && created() {
		c.futures.forget(ctx, id)
	}
	return err
}

// create creates the slot before the request is sent or, if the store can, makes the
// send create it. It returns the context of the send, whether the slot existed already,
// and after the send whether there is one.
func (c *Client[T, R]) create(ctx context.Context, id string, fresh bool) (sending context.Context, known bool, created func() bool, err error) {
	if store, ok := c.futures.store.(driver.LinkedReplyStore); ok && fresh && store.LinkedTo(c.requests.Queue()) {
		sending, created, err = store.CreateWithSend(ctx, id, c.ttl)
		return sending, false, created, err
	}
	known, err = c.createFirst(ctx, id)
	return ctx, known, func() bool { return true }, err
}

// createFirst creates the slot, and reports whether it existed already. It replaces one
// that has expired and was not swept.
func (c *Client[T, R]) createFirst(ctx context.Context, id string) (known bool, err error) {
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

// repeated returns the error for a request that was sent before, whose answer does
// not go to the new slot.
func (c *Client[T, R]) repeated(id string, sent mailbox.Sent) error {
	return &mailbox.Error{
		Code: mailbox.ErrReplyExpired, Op: "send", Queue: c.requests.Name(), MessageID: sent.ID,
		Detail: "the request was sent before; its answer goes to another slot, was read, or has expired",
		Err:    driver.SlotError("send", id, driver.ErrConflict),
	}
}

// Call sends a request and waits for its answer. If ctx ends or the store does not
// answer, it cancels the request, so that no worker starts it, unless the answer has
// arrived meanwhile. Codes: those of Send and of Future.Wait.
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

// Future returns the future of an earlier request by its id, also of one that
// another process sent. It does no I/O.
func (c *Client[T, R]) Future(id string) *Future[R] {
	return &Future[R]{futures: &c.futures, id: id}
}
