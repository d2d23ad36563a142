package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	_ "time/tzdata" // schedules have zones, and a bare machine has no data of them

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	pools "github.com/mailboxmq/mailbox/internal/share"
	"github.com/mailboxmq/mailbox/internal/verify"
	"github.com/mailboxmq/mailbox/internal/version"
	"github.com/mailboxmq/mailbox/server/internal/broker"
	"github.com/mailboxmq/mailbox/server/internal/console"
	"github.com/mailboxmq/mailbox/server/internal/guard"
	"github.com/mailboxmq/mailbox/server/internal/httpapi"
	"github.com/mailboxmq/mailbox/server/internal/metrics"
	"github.com/mailboxmq/mailbox/server/internal/oapapi"
	"github.com/mailboxmq/mailbox/server/internal/rpcapi"
	"github.com/mailboxmq/mailbox/server/internal/sqsapi"
)

// Options are what an embedding program can pass besides the configuration. The zero
// value, and nil, mean the defaults.
type Options struct {
	// Logger gets the log; nil means standard error, in the format and at the level of
	// the configuration.
	Logger *slog.Logger
	// Opener is the backend; nil means the one that the configuration names. The daemon
	// does not close it.
	Opener driver.Opener
	// Shared says that other daemons use Opener's queues too. Daemons on one backend
	// share their revocations and their audit log through queues there. With Redis or PostgreSQL in the
	// configuration they always do.
	Shared bool
}

// A Server is a daemon. Make one with New, and run it once with Run.
type Server struct {
	config   atomic.Pointer[Config]
	log      *slog.Logger
	level    *slog.LevelVar
	opener   driver.Opener     // nil until it is opened
	replies  driver.ReplyStore // nil if the backend has none
	shared   bool              // other daemons may be on the same backend
	embedded bool              // the embedding program passed opener
	metrics  *metrics.Set

	keys      *keyStore
	broker    *broker.Broker
	api       *httpapi.Handler
	http      *http.Server
	console   *console.Handler
	rpc       *rpcapi.Handler
	oap       *oapapi.Server
	sqs       *sqsapi.Service
	sqsHTTP   *http.Server // serves the SQS listener
	sqsSigned http.Handler
	declare   func([]SQSQueue) error // set before started is closed; valid during Run
	certs     *certificates          // nil without TLS
	started   chan struct{}
	drainNow  chan struct{} // closed by DrainNow
	ran       atomic.Bool

	drainOnce sync.Once  // for drainNow
	mu        sync.Mutex // guards the fields below
	addresses map[string]net.Addr
	// connections are the pools of the listeners.
	connections []*pools.Pool
}

// The names of the listeners, for Address.
const (
	HTTP    = "http"
	OAP     = "oap"
	SQS     = "sqs"
	Metrics = "metrics"
	Socket  = "socket"
)

// New returns a daemon that is not running. It does no I/O. The error is that of
// Config.Validate.
func New(config Config, options *Options) (*Server, error) {
	config = config.complete()
	if err := config.Validate(); err != nil {
		return nil, err
	}
	s := &Server{
		level: new(slog.LevelVar), metrics: metrics.New(), started: make(chan struct{}), drainNow: make(chan struct{}), addresses: make(map[string]net.Addr),
	}
	if options != nil {
		s.log, s.opener, s.shared = options.Logger, options.Opener, options.Shared
		s.embedded = s.opener != nil
	}
	level, _ := config.logLevel() // cannot fail: the configuration was validated
	s.level.Set(level)
	if s.log == nil {
		s.log = newLogger(os.Stderr, config.LogFormat, s.level)
	}
	s.config.Store(&config)
	return s, nil
}

func newLogger(w io.Writer, format string, level slog.Leveler) *slog.Logger {
	options := &slog.HandlerOptions{Level: level}
	if format == "text" {
		return slog.New(slog.NewTextHandler(w, options))
	}
	return slog.New(slog.NewJSONHandler(w, options))
}

// Config returns the current configuration, with all defaults set.
func (s *Server) Config() Config { return *s.config.Load() }

// Started is closed when all listeners are open.
func (s *Server) Started() <-chan struct{} { return s.started }

// Address returns the address of a listener: HTTP, OAP, SQS, Metrics or Socket. It is
// empty if the listener is off or not open yet.
func (s *Server) Address(listener string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if address := s.addresses[listener]; address != nil {
		return address.String()
	}
	return ""
}

// Logger returns the daemon's logger, for the embedding program.
func (s *Server) Logger() *slog.Logger { return s.log }

// OperatorToken returns the operator's token, which allows everything; the zero Token
// before the daemon has started. It is a secret.
func (s *Server) OperatorToken() capability.Token {
	if s.keys == nil {
		return capability.Token{}
	}
	return s.keys.operatorToken()
}

// Run opens the backend, listens, and serves until ctx ends. Then readiness fails for
// Config.DrainDelay while requests still work, and after that the daemon drains within
// Config.DrainTimeout: it refuses writes, then receives, finishes running requests, and
// closes everything. Run returns nil after a drain, and an error if the daemon could not
// start or a listener failed. It can be called once.
func (s *Server) Run(ctx context.Context) (err error) {
	if s.ran.Swap(true) {
		return &driver.Error{Code: driver.ErrInvalid, Op: "run", Detail: "Run can be called only once"}
	}
	config := s.Config()
	closeBackend, err := s.openBackend(ctx, &config)
	if err != nil {
		return fmt.Errorf("open backend: %w", err)
	}
	defer func() { err = errors.Join(err, closeBackend()) }()
	if s.keys, err = openKeyStore(ctx, &config); err != nil {
		return fmt.Errorf("open keys: %w", err)
	}
	defer func() { err = errors.Join(err, s.keys.close()) }()
	if s.shared {
		if err := s.keys.share(ctx, s.opener, s.name, s.log); err != nil {
			return err
		}
	}
	if err := s.keys.renewOperator(ctx, s.log); err != nil {
		return err
	}
	if err := s.assemble(&config); err != nil {
		return err
	}
	s.declare = func(queues []SQSQueue) error { return s.sqs.Declare(ctx, queues) }
	if err := s.declare(config.SQS.Queues); err != nil {
		return err
	}
	listeners, err := s.listen(ctx, &config)
	if err != nil {
		return err
	}
	if s.keys.sharedAudit != nil {
		if err := s.keys.sharedAudit.sync(ctx); err != nil {
			return fmt.Errorf("read audit log of all daemons: %w", err)
		}
	}
	return s.serve(ctx, listeners)
}

// assemble makes the broker and its surfaces.
func (s *Server) assemble(config *Config) (err error) {
	s.broker, err = broker.New(broker.Options{
		Opener: s.opener, Replies: s.replies, Backend: s.backendName(config), Shared: s.shared, Ring: s.keys.ring, Revocations: s.keys.revocations, Keeper: s.keys, Backups: s.backups(config),
		Audit: s.keys.auditLog(), Operator: s.keys.operatorToken,
		Verifier: verify.New(s.keys.ring, &verify.Options{
			Audience: []string{config.Audience}, Revocations: s.keys.revocations, CacheTTL: config.CapCacheTTL,
		}),
		Limits: config.limits(), Metrics: s.metrics, Logger: s.log,
	})
	if err != nil {
		return err
	}
	hosts, err := config.hosts()
	if err != nil {
		return err
	}
	s.rpc = rpcapi.New(rpcapi.Options{
		Broker: s.broker, Logger: s.log, ReadTimeout: config.ReadTimeout, WriteTimeout: config.WriteTimeout,
		MaxMessages: config.MaxMessages, MaxBytes: config.MaxBytes, Visibility: config.VisibilityDefault, Hosts: hosts,
	})
	s.api = httpapi.New(httpapi.Options{
		Broker: s.broker, Logger: s.log, ReadTimeout: config.ReadTimeout, WriteTimeout: config.WriteTimeout,
		MaxMessages: config.MaxMessages, MaxBytes: config.MaxBytes, Visibility: config.VisibilityDefault, Ready: s.readiness, Hosts: hosts,
		Version: version.Read().Version,
	})
	s.console = s.newConsole(config, hosts)
	s.http = s.httpServer(config, s.route(s.besideConsole(config, s.api)))
	s.http.RegisterOnShutdown(s.console.Close)
	if err := s.assembleSQS(config, hosts); err != nil {
		return err
	}
	s.oap = oapapi.New(oapapi.Options{
		Broker: s.broker, MaxConnections: config.MaxConnections, Logger: s.log,
		HandshakeTimeout: config.ReadTimeout, FrameTimeout: config.ReadTimeout, WriteTimeout: config.WriteTimeout, IdleTimeout: config.IdleTimeout,
	})
	s.showFigures()
	s.describe(config)
	s.warnOfLoss(config)
	return nil
}

// httpServer returns the HTTP server of a listener, with limits on everything that a
// client could do slowly or send too much of.
func (s *Server) httpServer(config *Config, handler http.Handler) *http.Server {
	return &http.Server{
		Handler:           guard.Bodies(handler, config.ReadTimeout),
		Protocols:         rpcapi.Protocols(),
		ReadHeaderTimeout: config.ReadTimeout, IdleTimeout: config.IdleTimeout, MaxHeaderBytes: 16 << 10,
		HTTP2:       http2Config(config),
		ConnContext: arriving,
		ErrorLog:    slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
}

const (
	// pongTimeout is how long an HTTP/2 client may take to answer a ping.
	pongTimeout = 5 * time.Second
	// pingAfter is the time without a complete frame after which a ping is sent, in read
	// timeouts: long enough that ten thousand idle connections cost next to nothing.
	pingAfter = 6
)

// http2Config pings HTTP/2 connections that have not sent a complete frame recently. A
// client that sends a frame byte by byte cannot answer before the frame ends, and is cut
// off; HTTP/2 libraries answer pings automatically.
func http2Config(config *Config) *http.HTTP2Config {
	return &http.HTTP2Config{SendPingTimeout: pingAfter * config.ReadTimeout, PingTimeout: pongTimeout}
}

// route passes gRPC, Connect and SQS requests to their handlers, and all others to
// other. It compares paths as sent: http.ServeMux would redirect those that are not
// clean.
func (s *Server) route(other http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, path := range rpcapi.Paths() {
			if strings.HasPrefix(r.URL.Path, path) {
				s.rpc.ServeHTTP(w, r)
				return
			}
		}
		if sqsapi.Wants(r) {
			s.sqsSigned.ServeHTTP(w, r)
			return
		}
		other.ServeHTTP(w, r)
	})
}

func (c *Config) limits() broker.Limits {
	return broker.Limits{
		MaxPayloadBytes: c.MaxBodyBytes, MinVisibility: c.VisibilityMin, MaxWait: c.MaxWait,
		MaxInFlight: max(c.GlobalInFlight, 0), MaxDedupKeys: max(c.GlobalDedup, 0), // 0 if they are off
		MaxWaiting: c.MaxWaiting, MaxQueues: c.MaxQueues, MaxSchedules: c.MaxSchedules, MaxReplySlots: c.MaxReplySlots, MaxReplyBytes: c.MaxReplyBytes,
		BackoffBase: c.BackoffBase, BackoffMax: c.BackoffMax,
	}
}

// serve serves on all listeners until stop ends or one of them fails, and drains.
func (s *Server) serve(stop context.Context, listeners []listener) error {
	ctx, end := context.WithCancel(context.WithoutCancel(stop)) // ends when the drain begins
	defer end()
	failed := make(chan error, len(listeners))
	var serving sync.WaitGroup
	// Requests that are running when ctx ends are finished, not cut off.
	work, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	for _, l := range listeners {
		serving.Go(func() {
			if err := l.serve(work, l.Listener); err != nil && !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
				failed <- fmt.Errorf("listener %s: %w", l.name, err)
			}
		})
	}
	serving.Go(func() { s.sqs.Resume(ctx) })
	serving.Go(func() { s.broker.RunSchedules(ctx) })
	serving.Go(func() { s.broker.RunHistory(ctx) })
	following, unfollow := context.WithCancel(ctx)
	defer unfollow()
	serving.Go(func() { s.keys.maintain(following, s.log) })
	if s.keys.shared != nil {
		serving.Go(func() { follow(following, s.keys.shared.sync, s.log, "revocations.unreadable") })
		serving.Go(func() { follow(following, s.keys.sharedAudit.sync, s.log, "audit.not_shared") })
	}
	s.warnOfPlaintext(ctx)
	s.log.LogAttrs(ctx, slog.LevelInfo, "started", s.startAttrs()...)
	if s.config.Load().InFlightFactor != 0 {
		s.log.LogAttrs(ctx, slog.LevelWarn, "setting.ignored", slog.String("key", "retention.inflight_factor"), slog.String("use", "retention.max_hold"))
	}
	close(s.started)
	var err error
	select {
	case <-stop.Done():
		err = s.announceDrain(ctx, failed)
	case err = <-failed:
	}
	end()
	s.drain(work, cut, listeners)
	unfollow()
	serving.Wait()
	return errors.Join(err, s.broker.Close())
}
