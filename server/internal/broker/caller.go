package broker

import (
	"context"
	"errors"
	"log/slog"
	"strings"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
)

// A Caller is somebody with a token. It is a small value: surfaces make one for
// each request, or one for a connection.
//
// All methods authorise before they do anything else. The errors of that are
// ErrUnauthenticated, ErrForbidden, or ErrFull (a quota; with RetryAfter), and
// wrap a capability.Reason; ErrUnavailable is a daemon that does not do this kind
// of work now. These codes are not repeated for each method. Errors name queues
// as the caller does.
type Caller struct {
	broker   *Broker
	token    capability.Token
	holder   holder
	tenant   string
	origin   Origin
	existing bool
	returns  bool
	rules    Rules
	binding  *Binding // nil: queues are their names
	answers  *Answers // nil: nothing counts once it was returned
}

// Caller returns who has this token. It does not verify it: that happens with
// each operation, because what is true now may not be later.
func (b *Broker) Caller(token capability.Token, origin Origin) Caller {
	return Caller{
		broker: b, token: token, holder: holder{token.ID(), token.Fingerprint()}, tenant: token.Tenant(), origin: origin,
	}
}

// CorrelatedBy returns the same caller with another correlation id.
func (c Caller) CorrelatedBy(id string) Caller {
	c.origin.CorrelationID = id
	return c
}

// Existing returns the same caller, who does not make queues by using them: what
// is not there is ErrNotFound.
func (c Caller) Existing() Caller {
	c.existing = true
	return c
}

// Returning returns the same caller, who may settle what it has received whatever its
// token is for, and whether that is still good. It is for surfaces that give back
// what they could not hand over, and for nothing that a client asks for.
func (c Caller) Returning() Caller {
	c.returns = true
	return c
}

// TokenID names the token. It is proven when an operation was authorised, or
// Genuine has returned nil.
func (c Caller) TokenID() capability.TokenID { return c.holder.token }

// Tenant is the one that the token says it was minted for.
func (c Caller) Tenant() string { return c.tenant }

// Genuine returns ErrUnauthenticated if the caller's token was not made with the
// daemon's keys, has expired, or is for later, whatever it is for. Surfaces call it
// to refuse a request before they read it. A token that was revoked passes: it may
// be shown for the ack of what it has taken before.
func (c Caller) Genuine(ctx context.Context) error {
	err := c.broker.verifier.Timely(ctx, c.token)
	if err != nil {
		c.refused(ctx, c.request(0, ""), err)
	} else if arrival, ok := ctx.Value(arrivalKey{}).(Arrival); ok {
		arrival.Shown()
	}
	return err
}

// Ping reports whether the backend would answer right now, to who has a token that
// is good for anything. It may block on I/O. Codes: ErrUnavailable.
func (c Caller) Ping(ctx context.Context) error {
	if err := c.broker.verifier.Valid(ctx, c.token); err != nil {
		c.refused(ctx, c.request(0, ""), err)
		return err
	}
	return c.broker.Ping(ctx)
}

func (c *Caller) request(operation capability.Operation, queue string) capability.Request {
	return capability.Request{
		Operation: operation, Topic: queue, Tenant: c.tenant, Client: c.origin.Client, Peer: c.origin.Peer,
	}
}

func (c *Caller) authorize(ctx context.Context, operation capability.Operation, queue string) (*capability.Grant, error) {
	return c.authorizeRequest(ctx, c.request(operation, queue))
}

func (c *Caller) authorizeRequest(ctx context.Context, request capability.Request) (*capability.Grant, error) {
	grant, err := c.broker.verifier.Authorize(ctx, c.token, request)
	if err != nil {
		c.refused(ctx, request, err)
	}
	return grant, err
}

// The reasons of rejections that are not those of a capability.
const (
	metricSaturated = "saturated"
	metricDegraded  = "degraded"
	metricSchema    = "schema"
	metricOversize  = "oversize"
	metricIntegrity = "integrity"
	metricDuplicate = "duplicate"
)

func (c *Caller) refused(ctx context.Context, request capability.Request, err error) {
	reason := capability.ReasonOf(err)
	if reason == "" {
		c.broker.metrics.Rejected(metricDegraded)
		return
	}
	c.broker.metrics.Refused(string(reason))
	if reason == capability.ReasonQuota {
		return // ordinary life of a busy client
	}
	// Forged tokens do not use up the lines of genuine ones.
	pace := &c.broker.refusedLines
	if reason == capability.ReasonNotGenuine {
		pace = &c.broker.forgedLines
	}
	suppressed, ok := pace.take(c.broker.now(), refusalLines, refusalEvery)
	if !ok {
		return // it is counted
	}
	attrs := c.attrs(request.Topic, attrReason(string(reason)), attrOperation(request.Operation))
	if suppressed > 0 {
		attrs = append(attrs, slog.Int("suppressed", suppressed))
	}
	c.broker.log.LogAttrs(ctx, levelRefusal, "auth.denied", attrs...)
}

// localised returns err with the queue's own name instead of the backend's.
func localised(err error, q *queue) error { return named(err, q.backend, q.name) }

func named(err error, backend, name string) error {
	if err == nil || name == backend {
		return err
	}
	if batch, ok := errors.AsType[*driver.BatchError](err); ok {
		errs := make([]error, len(batch.Errs))
		for i, e := range batch.Errs {
			errs[i] = named(e, backend, name)
		}
		return &driver.BatchError{Errs: errs}
	}
	if e, ok := err.(*driver.Error); ok && e.Queue == backend { //nolint:errorlint // only the outermost names the queue
		renamed := *e
		renamed.Queue = name
		renamed.Detail = strings.ReplaceAll(e.Detail, strings.TrimSuffix(backend, name), "") // other topics of the tenant
		return &renamed
	}
	return err
}

// rejection is the label of an error in the count of rejections.
func rejection(err error) string {
	e, _ := errors.AsType[*driver.Error](err)
	if e == nil {
		return metricDegraded
	}
	switch e.Code {
	case driver.ErrFull:
		return metricSaturated
	case driver.ErrTooLarge:
		return metricOversize
	case driver.ErrIntegrity:
		return metricIntegrity
	case driver.ErrConflict:
		return metricDuplicate
	case driver.ErrUnavailable, driver.ErrClosed:
		return metricDegraded
	}
	return metricSchema
}
