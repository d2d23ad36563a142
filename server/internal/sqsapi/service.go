package sqsapi

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mailboxmq/mailbox/server/internal/broker"
	"github.com/mailboxmq/mailbox/server/internal/guard"
	"github.com/mailboxmq/mailbox/server/internal/sqsapi/keepalive"
	"github.com/mailboxmq/mailbox/server/internal/sqsapi/sqswire"
)

// The limits of SQS that are checked here.
const (
	maxMessageBytes      = sqswire.MaxMessageBytes
	maxVisibilitySeconds = 43_200
	maxDelaySeconds      = 900
	maxWaitSeconds       = 20
)

// PayloadRoom is how much longer than the largest message of SQS a body in the broker
// can be: attributes that do not fit are appended to it. A backend for this surface must
// accept MaxPayloadBytes.
const (
	PayloadRoom     = 16 << 10
	MaxPayloadBytes = maxMessageBytes + PayloadRoom
)

// Options configure a Service.
type Options struct {
	Broker *broker.Broker
	// Logger gets a line for each request that failed because of the service, not the
	// client. Nil logs nothing.
	Logger *slog.Logger
	// Credentials are configured access keys, besides those of capabilities; nil means
	// none.
	Credentials *Credentials
	// ReadTimeout bounds how long a request may take to arrive, and WriteTimeout how
	// long the client may take to read the answer; 0 means 5 s.
	ReadTimeout, WriteTimeout time.Duration
	// TakeOver lets handlers take connections over from package http, which spends more
	// on a request than all other steps together. Shutdown ends these connections.
	TakeOver bool
	// StrictMinute enforces the 60-second rules of AWS: the name of a deleted queue
	// cannot be used again for a minute, and a queue is purged at most once a minute.
	StrictMinute bool
	// ManagedSSE makes new queues claim SQS encryption, as on AWS, because clients of
	// emulators may require it. Nothing is encrypted.
	ManagedSSE bool
	// Shared: other daemons may use the same backend. Without it, a move task that an
	// earlier process of the daemon left behind resumes at once.
	Shared bool
	// Hosts are the host names that are allowed in unsigned requests.
	Hosts guard.Hosts
}

// A Service implements the actions. It is safe for concurrent use. Its only goroutines
// are those of move tasks.
type Service struct {
	options     Options
	broker      *broker.Broker
	log         *slog.Logger
	queues      queueTable
	daemons     daemonTable
	sessions    sessionTable
	attempts    attemptTable
	cooldowns   cooldownTable
	tasks       taskTable
	connections *keepalive.Server // nil if no connections are taken over
	drain       *guard.Drain

	credentials atomic.Pointer[Credentials]
}

const defaultTimeout = 5 * time.Second

// New returns a service. It does no I/O.
func New(options Options) *Service {
	if options.ReadTimeout == 0 {
		options.ReadTimeout = defaultTimeout
	}
	if options.WriteTimeout == 0 {
		options.WriteTimeout = defaultTimeout
	}
	s := &Service{options: options, broker: options.Broker, log: options.Logger, drain: guard.NewDrain(drainGrace)}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.credentials.Store(options.Credentials)
	s.queues.init()
	s.attempts.init()
	s.cooldowns.init()
	s.tasks.init()
	if options.TakeOver {
		s.connections = keepalive.New(keepalive.Options{ReadTimeout: options.ReadTimeout, WriteTimeout: options.WriteTimeout, Wants: wantsNext})
	}
	return s
}

// Close stops the move tasks that run here and waits for them; another daemon, or this
// one after a restart, resumes them. It also begins the drain, which does not wait for
// requests that are still arriving.
func (s *Service) Close() {
	s.drain.Begin()
	s.tasks.close()
}

// Shutdown ends the connections that were taken over, each after the response to its
// current request. It blocks until all are closed; when ctx ends it closes the rest and
// returns the error of ctx. It must be called once.
func (s *Service) Shutdown(ctx context.Context) error {
	if s.connections == nil {
		return nil
	}
	return s.connections.Shutdown(ctx)
}

// SetCredentials replaces the configured access keys; nil means none.
func (s *Service) SetCredentials(credentials *Credentials) { s.credentials.Store(credentials) }

// Signed returns the handler for signed requests.
func (s *Service) Signed() http.Handler { return &handler{service: s, signed: true} }

// Unsigned returns a handler that lets every client do everything with the queues of no
// tenant. It is for tests on one machine.
func (s *Service) Unsigned() http.Handler { return &handler{service: s} }

// daemonTTL is how long the daemon's own caller is cached: less than its token is valid.
const daemonTTL = 5 * time.Minute

// A daemonTable caches the daemon's own callers, one for each tenant.
type daemonTable struct {
	mu    sync.Mutex // guards known
	known map[string]daemonCaller
}

type daemonCaller struct {
	broker.Caller
	made time.Time
}

// maxDaemons bounds the cache.
const maxDaemons = 10_000

// daemon returns the daemon itself as a caller of a tenant. It may only be used for
// operations that were authorised for a client before.
func (s *Service) daemon(tenant string) (broker.Caller, error) {
	t := &s.daemons
	t.mu.Lock()
	defer t.mu.Unlock()
	if known, ok := t.known[tenant]; ok && time.Since(known.made) < daemonTTL {
		return known.Caller, nil
	}
	caller, err := s.broker.Daemon(tenant)
	if err != nil {
		return caller, err
	}
	caller = withSQSRules(caller)
	if t.known == nil || len(t.known) >= maxDaemons {
		t.known = make(map[string]daemonCaller)
	}
	t.known[tenant] = daemonCaller{caller, time.Now()}
	return caller, nil
}

// withSQSRules returns a caller with the limits of SQS.
func withSQSRules(caller broker.Caller) broker.Caller {
	return caller.Existing().Under(broker.Rules{MaxPayloadBytes: MaxPayloadBytes, AnyVisibility: true, AnyWait: true})
}

// A request is one call of an action.
type request struct {
	service *Service
	caller  broker.Caller
	action  sqswire.Action
	// account and region are those of the credentials; host, with TLS if secure, is
	// where the client reached the daemon.
	account, region, host string
	secure                bool
	// trace is the header X-Amzn-Trace-Id, for messages that have no AWSTraceHeader.
	trace string
	// giveBack is called if the client has disconnected when the answer is written.
	giveBack func(ctx context.Context)
}

// arn returns the ARN of a queue of the caller.
func (r *request) arn(queue string) string { return arnOf(r.region, r.account, queue) }

// url returns the URL of a queue of the caller. It has the host by which the client
// reached the daemon, so that it works for that client.
func (r *request) url(queue string) string {
	scheme := "http://"
	if r.secure {
		scheme = "https://"
	}
	return scheme + r.host + "/" + r.account + "/" + queue
}
