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

// PayloadRoom is how much longer than the largest message of SQS a payload can be
// that the broker gets: attributes that do not fit beside it are packed behind it.
// A backend for this surface has to take MaxPayloadBytes.
const (
	PayloadRoom     = 16 << 10
	MaxPayloadBytes = maxMessageBytes + PayloadRoom
)

// Options configure a Service.
type Options struct {
	Broker *broker.Broker
	// Logger gets a line for each request that failed for a reason of ours. Nil
	// logs nothing.
	Logger *slog.Logger
	// Credentials are those that were not made of capabilities; nil means none.
	Credentials *Credentials
	// ReadTimeout bounds how long a request may take to arrive, and WriteTimeout how
	// long the client may take to read the answer; 0 means 5 s.
	ReadTimeout, WriteTimeout time.Duration
	// TakeOver lets handlers take connections of clients over from package http, which
	// spends more on a request than everything else together. Shutdown ends these.
	TakeOver bool
	// StrictMinute makes queues behave as on AWS for a minute: a name cannot be used
	// again that soon after its queue was deleted, and a queue is not purged twice.
	StrictMinute bool
	// ManagedSSE makes new queues say that SQS encrypts them, as on AWS, which clients
	// of emulators may insist on. Nothing is encrypted.
	ManagedSSE bool
	// Shared says that other daemons may be on the same backend. Without it a move
	// task that was left by another life of the daemon goes on at once.
	Shared bool
	// Hosts are the names that requests without a signature may be for.
	Hosts guard.Hosts
}

// A Service does what the actions say. It is safe for concurrent use. Its only
// goroutines are those of move tasks.
type Service struct {
	options     Options
	broker      *broker.Broker
	log         *slog.Logger
	queues      queueTable
	daemons     daemonTable
	sessions    sessionTable
	attempts    attemptTable
	minute      minuteTable
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
	s.minute.init()
	s.tasks.init()
	if options.TakeOver {
		s.connections = keepalive.New(keepalive.Options{ReadTimeout: options.ReadTimeout, WriteTimeout: options.WriteTimeout, Wants: wantsNext})
	}
	return s
}

// Close ends the move tasks that run here and waits for them; another daemon, or
// this one when it is started again, goes on with them. It also begins the drain:
// requests that are still arriving are not waited for.
func (s *Service) Close() {
	s.drain.Begin()
	s.tasks.close()
}

// Shutdown ends the connections that were taken over, each when it has answered what
// it was asked. It blocks until all are closed; when ctx ends it cuts them off, and
// returns its error. It is to be called once.
func (s *Service) Shutdown(ctx context.Context) error {
	if s.connections == nil {
		return nil
	}
	return s.connections.Shutdown(ctx)
}

// SetCredentials takes other credentials, from now on; nil means none.
func (s *Service) SetCredentials(credentials *Credentials) { s.credentials.Store(credentials) }

// Signed returns the handler for clients who have to sign.
func (s *Service) Signed() http.Handler { return &handler{service: s, signed: true} }

// Unsigned returns a handler that believes everybody, and lets them do everything
// with the topics of no tenant. It is for tests on one machine.
func (s *Service) Unsigned() http.Handler { return &handler{service: s} }

// daemonFor is how long a caller for the daemon itself is used: less than its token
// is good.
const daemonFor = 5 * time.Minute

// A daemonTable remembers the daemon as a caller of tenants.
type daemonTable struct {
	mu    sync.Mutex // guards known
	known map[string]daemonCaller
}

type daemonCaller struct {
	broker.Caller
	made time.Time
}

// maxDaemons bounds how many tenants are remembered.
const maxDaemons = 10_000

// daemon returns the daemon itself as a caller of a tenant. What it is used for has
// to be authorised for somebody before.
func (s *Service) daemon(tenant string) (broker.Caller, error) {
	t := &s.daemons
	t.mu.Lock()
	defer t.mu.Unlock()
	if known, ok := t.known[tenant]; ok && time.Since(known.made) < daemonFor {
		return known.Caller, nil
	}
	caller, err := s.broker.Daemon(tenant)
	if err != nil {
		return caller, err
	}
	caller = ruled(caller)
	if t.known == nil || len(t.known) >= maxDaemons {
		t.known = make(map[string]daemonCaller)
	}
	t.known[tenant] = daemonCaller{caller, time.Now()}
	return caller, nil
}

// ruled returns a caller who is served by the rules of SQS.
func ruled(caller broker.Caller) broker.Caller {
	return caller.Existing().Under(broker.Rules{MaxPayloadBytes: MaxPayloadBytes, AnyVisibility: true, AnyWait: true})
}

// A request is one call of an action.
type request struct {
	service *Service
	caller  broker.Caller
	action  sqswire.Action
	// account and region are those of the credentials, and host, perhaps over TLS, is
	// where the client reached the daemon.
	account, region, host string
	secure                bool
	// trace is the header X-Amzn-Trace-Id, for messages that have no AWSTraceHeader.
	trace string
	// giveBack is called if the client is gone when the answer is written.
	giveBack func(ctx context.Context)
}

// arn names a queue of the caller's.
func (r *request) arn(queue string) string { return arnOf(r.region, r.account, queue) }

// url is where a queue of the caller's is found: where the client reached the daemon,
// so that it works for that client.
func (r *request) url(queue string) string {
	scheme := "http://"
	if r.secure {
		scheme = "https://"
	}
	return scheme + r.host + "/" + r.account + "/" + queue
}
