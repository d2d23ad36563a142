package broker

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"strings"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/macaroon"
	"github.com/mailboxmq/mailbox/internal/verify"
)

// A Caller executes operations on behalf of a token. It is a small value: surfaces
// make one for each request, or one for a connection.
//
// All methods authorise before they do anything else. A refusal is
// ErrUnauthenticated, ErrForbidden, or ErrFull (a quota; with RetryAfter), and wraps
// a capability.Reason. ErrUnavailable means that the daemon drains and does not do
// this kind of work any more. These codes are not repeated for each method. Errors
// name queues as the caller does.
type Caller struct {
	broker   *Broker
	token    capability.Token
	holder   holder
	tenant   string
	origin   Origin
	existing bool
	returns  bool
	// unmetered: looking counts in no quota.
	unmetered bool
	rules     Rules
	binding   *Binding // nil: queues are found by name alone
	answers   *Answers // nil: an answer uses no memory once it is returned
}

// Caller returns a caller with this token. It does not verify the token: each
// operation does, because the token may expire or be revoked in between.
func (b *Broker) Caller(token capability.Token, origin Origin) Caller {
	return Caller{
		broker: b, token: token, holder: holder{token.ID(), fingerprintOf(token)}, tenant: token.Tenant(), origin: origin,
	}
}

// CorrelatedBy returns the same caller with another correlation id.
func (c Caller) CorrelatedBy(id string) Caller {
	c.origin.CorrelationID = id
	return c
}

// Existing returns the same caller, which does not create queues: a queue that does
// not exist is ErrNotFound.
func (c Caller) Existing() Caller {
	c.existing = true
	return c
}

// GiveBack releases deliveries that a surface could not hand over (FLOW-4). On a backend
// that counts every delivery it ends their leases. It does so whatever the token allows, and
// after the token has expired: it is never for a request of a client. If it fails, the
// messages become ready again when their leases end. It blocks on the backend.
func (c Caller) GiveBack(ctx context.Context, queue string, deliveries []Delivery) error {
	if len(deliveries) == 0 {
		return nil
	}
	c.returns = true
	nacks, ends := make([]Nack, len(deliveries)), make([]Extension, len(deliveries))
	for i := range deliveries {
		nacks[i] = Nack{Receipt: deliveries[i].Receipt, Mode: driver.NackRelease}
		ends[i].Receipt = deliveries[i].Receipt
	}
	err := c.Nack(ctx, queue, nacks)
	if errors.Is(driver.At(err, 0), driver.ErrUnsupported) {
		_, err = c.Extend(ctx, queue, ends)
	}
	return err
}

// TokenID returns the id of the token. It is unverified until an operation was
// authorised or Genuine returned nil.
func (c Caller) TokenID() capability.TokenID { return c.holder.token }

// Tenant returns the tenant that the token names.
func (c Caller) Tenant() string { return c.tenant }

// Genuine returns ErrUnauthenticated if the caller's token was not made with the
// daemon's keys, has expired, or is not valid yet. It does not look at operations and
// queues. Surfaces call it to refuse a request before they read it. A revoked token
// passes: it may still ack deliveries that it took before. It does not block for a
// genuine token, and as Stranger does for others.
func (c Caller) Genuine(ctx context.Context) error {
	err := c.broker.verifier.Timely(ctx, c.token)
	if err != nil {
		c.refused(ctx, c.request(0, ""), err)
		_ = c.broker.Stranger(ctx, c.origin.Client) // the client is refused in any case
	} else {
		shown(ctx)
	}
	return err
}

// Ping reports whether the backend answers. It needs any valid token, and may block on
// I/O. Codes: ErrUnavailable.
func (c Caller) Ping(ctx context.Context) error {
	if err := c.Valid(ctx); err != nil {
		return err
	}
	return c.broker.Ping(ctx)
}

// Valid is Genuine that also refuses revoked tokens. It blocks only where the revocations do.
func (c Caller) Valid(ctx context.Context) error {
	err := c.broker.verifier.Valid(ctx, c.token)
	if err != nil {
		c.refused(ctx, c.request(0, ""), err)
	} else {
		shown(ctx)
	}
	return err
}

// Unmetered returns the same caller, whose looks at messages use up no quota and are not refused
// for one. It is for surfaces that look again and again at a pace of their own.
func (c Caller) Unmetered() Caller {
	c.unmetered = true
	return c
}

func (c *Caller) request(operation capability.Operation, queue string) verify.Request {
	return verify.Request{
		Operation: operation, Queue: queue, Tenant: c.tenant, Client: c.origin.Client, Peer: c.origin.Peer,
		Unmetered: c.unmetered && (operation == capability.OpPeek || operation == capability.OpDLQ),
	}
}

func (c *Caller) authorize(ctx context.Context, operation capability.Operation, queue string) (*verify.Grant, error) {
	return c.authorizeRequest(ctx, c.request(operation, queue))
}

func (c *Caller) authorizeRequest(ctx context.Context, request verify.Request) (*verify.Grant, error) {
	grant, err := c.broker.verifier.Authorize(ctx, c.token, request)
	if err != nil {
		c.refused(ctx, request, err)
	}
	return grant, err
}

// The reasons of rejections other than those of package capability.
const (
	metricSaturated = "saturated"
	metricDegraded  = "degraded"
	metricSchema    = "schema"
	metricOversize  = "oversize"
	metricIntegrity = "integrity"
	metricDuplicate = "duplicate"
)

func (c *Caller) refused(ctx context.Context, request verify.Request, err error) {
	reason := capability.ReasonOf(err)
	if reason == "" {
		c.broker.metrics.Rejected(metricDegraded)
		return
	}
	c.broker.metrics.Refused(string(reason))
	if reason == capability.ReasonQuota {
		return // normal for a busy client
	}
	// Forged tokens do not use up the lines of genuine ones.
	pace := &c.broker.refusedLines
	if reason == capability.ReasonNotGenuine {
		pace = &c.broker.forgedLines
	}
	suppressed, ok := pace.take(c.broker.now(), refusalLines, refusalEvery)
	if !ok {
		return // the metric counts it
	}
	attrs := c.attrs(request.Queue, attrReason(string(reason)), attrOperation(request.Operation))
	if suppressed > 0 {
		attrs = append(attrs, slog.Int("suppressed", suppressed))
	}
	c.broker.log.LogAttrs(ctx, levelRefusal, "auth.denied", attrs...)
}

// localised returns err with the name that the caller uses for the queue.
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
		renamed.Detail = strings.ReplaceAll(e.Detail, strings.TrimSuffix(backend, name), "") // other queues of the tenant
		return &renamed
	}
	return err
}

// rejection returns the label that an error has in the metric of rejections.
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

// A holder identifies the token of a caller. Tokens narrowed from the same token share
// its id, and are revoked by it; the fingerprint tells them apart. Without a receipt,
// a token can settle only deliveries that exactly this token took.
type holder struct {
	token capability.TokenID
	exact Fingerprint
}

// A Fingerprint names one token exactly: tokens narrowed from it have the same id, and
// other fingerprints. It is not secret, and the token cannot be derived from it.
type Fingerprint [16]byte

func fingerprintOf(token capability.Token) Fingerprint {
	var buffer [512]byte // enough for most tokens
	sum := sha256.Sum256(token.RevealBinary(buffer[:0]))
	return Fingerprint(sum[:16])
}

// Fingerprint returns the fingerprint of the caller's token.
func (c Caller) Fingerprint() Fingerprint { return c.holder.exact }

// Signed returns the token whose AWS credentials signed a request; see
// verify.Verifier.TokenSigned for signed. The errors are those of authorisation.
// It blocks only where the revocations do.
func (b *Broker) Signed(ctx context.Context, accessKeyID, sessionToken string, signed func(secret macaroon.Secret) bool, origin Origin) (capability.Token, error) {
	token, err := b.verifier.TokenSigned(ctx, accessKeyID, sessionToken, signed)
	if err != nil {
		unknown := Caller{broker: b, origin: origin}
		unknown.refused(ctx, verify.Request{}, err)
	}
	return token, err
}

// Uses returns nil if the caller's token allows any operation on a queue, which need
// not exist. Surfaces call it before they reveal anything about the queue. It does not
// count against quotas.
func (c Caller) Uses(ctx context.Context, queue string) error { return c.authorizeUse(ctx, queue) }

// May returns nil if the token allows an operation on a queue, for requests of a
// surface that consist of several operations. It counts as one message in quotas.
func (c Caller) May(ctx context.Context, operation capability.Operation, queue string) error {
	request := c.request(operation, queue)
	request.Load = verify.Load{Messages: 1}
	_, err := c.authorizeRequest(ctx, request)
	return err
}

// Allows reports whether the token allows an operation on a queue, for surfaces that show
// people what they may do. An empty queue is the daemon as a whole. Unlike May it counts
// against no quota, and a refusal is neither logged nor counted.
func (c Caller) Allows(ctx context.Context, operation capability.Operation, queue string) bool {
	if operation == capability.OpAudit && c.IsOperator() {
		return true
	}
	grant, err := c.broker.verifier.AuthorizeUse(ctx, c.token, c.request(0, queue))
	return err == nil && grant.AllowsOperation(operation)
}

// IsOperator reports whether the token is the daemon's own.
func (c Caller) IsOperator() bool {
	operator := c.broker.operator
	return operator != nil && !c.token.IsZero() && c.token.Equal(operator())
}

// An Origin is where a request comes from.
type Origin struct {
	// Client is the address of the client; the zero Addr if it has none, as on a
	// unix socket.
	Client netip.Addr
	// Peer is the SPIFFE id of the client's certificate, if that was verified.
	Peer string
	// CorrelationID is logged with the request and stored in the messages that it
	// sends. If it is empty, each message gets its own.
	CorrelationID string
	// Worker is what the client calls itself when it receives, and Protocol how it does; see Caller.Named.
	Worker, Protocol string
}

// ClientAt returns the address in the host:port of a remote; the zero Addr if there is
// none, as on a unix socket. It ignores headers of proxies. It drops the zone of a
// link-local address, because a token cannot name an interface of this machine.
func ClientAt(remote string) netip.Addr {
	address, err := netip.ParseAddrPort(remote)
	if err != nil {
		return netip.Addr{}
	}
	return address.Addr().Unmap().WithZone("")
}

// PeerOf returns the SPIFFE id of the client's verified certificate, or "". state is
// nil without TLS.
func PeerOf(state *tls.ConnectionState) string {
	if state == nil || len(state.VerifiedChains) == 0 {
		return ""
	}
	for _, uri := range state.VerifiedChains[0][0].URIs {
		if uri.Scheme == "spiffe" {
			return uri.String()
		}
	}
	return ""
}

// OriginOf returns the origin of a connection. Call it after the first byte arrived,
// when a TLS handshake is complete.
func OriginOf(c net.Conn) Origin {
	origin := Origin{Client: ClientAt(c.RemoteAddr().String())}
	if secure, ok := c.(*tls.Conn); ok {
		state := secure.ConnectionState()
		origin.Peer = PeerOf(&state)
	}
	return origin
}

// An Arrival is a connection; Shown is called when a genuine token arrives on it.
type Arrival interface{ Shown() }

type arrivalKey struct{}

// shown tells the connection of ctx, if there is one, that a genuine token arrived on it.
func shown(ctx context.Context) {
	if arrival, ok := ctx.Value(arrivalKey{}).(Arrival); ok {
		arrival.Shown()
	}
}

// WithArrival returns a context for the requests of a connection.
func WithArrival(ctx context.Context, a Arrival) context.Context {
	return context.WithValue(ctx, arrivalKey{}, a)
}
