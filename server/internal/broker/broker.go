package broker

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/audit"
	"github.com/mailboxmq/mailbox/internal/share"
	"github.com/mailboxmq/mailbox/server/internal/metrics"
)

// Options are what a Broker is made of.
type Options struct {
	// Opener is the backend. The broker does not close it. It counts deaths if the
	// backend is a driver.Observable.
	Opener driver.Opener
	// Ring holds the keys that receipts are sealed with, and Verifier decides
	// about tokens of the same ring.
	Ring     *capability.KeyRing
	Verifier *capability.Verifier
	// Revocations are those that the verifier asks, for who may revoke tokens
	// here; nil means that nobody may.
	Revocations Revoker
	// Keeper changes the keys of Ring, for who may; nil means that nobody may.
	Keeper KeyKeeper
	// Audit keeps what is changed; nil keeps it in memory. The broker does not close it.
	Audit *audit.Log
	// Operator returns the daemon's own token, which may always read Audit; nil: there is none.
	Operator func() capability.Token
	// Backups backs the daemon up; nil refuses backups.
	Backups Backups
	Limits  Limits
	// Metrics count; nil counts for nobody.
	Metrics *metrics.Set
	// Logger gets what happens to messages that nobody asked for, and refusals.
	// Nil logs nothing.
	Logger *slog.Logger
}

// A Broker does everything that a daemon can be asked for. It is safe for
// concurrent use, and has no goroutine of its own: when nothing is asked, it
// does nothing.
type Broker struct {
	opener      driver.Opener
	admin       driver.Admin // nil if the backend is none
	verifier    *capability.Verifier
	ring        *capability.KeyRing
	revocations Revoker
	keeper      KeyKeeper
	backups     Backups
	audit       *audit.Log
	operator    func() capability.Token
	limits      atomic.Pointer[Limits]
	metrics     *metrics.Set
	log         *slog.Logger

	start    time.Time // of the clock of leases
	queues   queueTable
	census   census
	receipts sealer
	traces   traceTable
	state    atomic.Int32 // a State
	waiting  waitTable
	// inFlight divides the leases that are out, and those that receives may bring,
	// and waits the receives that wait.
	inFlight, waits *share.Pool
	dedup           dedupKeys
	// work lets callers use the backend in turns, and memory bounds what requests
	// and answers take.
	work, memory *share.Gate
	// sweptAt is when leases that ended were last looked for, and sweepPause how
	// long that is not repeated.
	sweptAt, sweepPause atomic.Int64

	messageLines  logLimiter
	keylessLines  logLimiter
	stopObserving func()
	// forgedLines and refusedLines bound what is logged about refused tokens.
	forgedLines, refusedLines logLimiter

	measuring  sync.Mutex // held while the figures of queues are taken
	measuredAt atomic.Int64
	deadFull   atomic.Int64 // queues whose dead letters are full
}

// New returns a broker. It does no I/O. It returns ErrInvalid if an option is
// missing or outside its limits.
func New(options Options) (*Broker, error) {
	missing := func(field string) error {
		return &driver.Error{Code: driver.ErrInvalid, Op: "start", Field: field, Detail: "is missing"}
	}
	switch {
	case options.Opener == nil:
		return nil, missing("Opener")
	case options.Ring == nil:
		return nil, missing("Ring")
	case options.Verifier == nil:
		return nil, missing("Verifier")
	}
	b := &Broker{
		opener: options.Opener, verifier: options.Verifier, ring: options.Ring, revocations: options.Revocations, keeper: options.Keeper, backups: options.Backups,
		audit: options.Audit, operator: options.Operator,
		metrics: options.Metrics, log: options.Logger, start: time.Now(),
	}
	b.inFlight = share.New("in-flight", "global_inflight", 0, retryInFlight)
	b.initTurns()
	b.dedup.init()
	b.census.pool = share.New("queues", "max_topics", 0, retryQueues)
	b.census.madeBy = make(map[string]capability.TokenID)
	b.waits = share.New("waiting receives", "max_waiting", 0, retryWaits)
	b.admin, _ = options.Opener.(driver.Admin)
	if b.audit == nil {
		b.audit = audit.InMemory()
	}
	if b.metrics == nil {
		b.metrics = metrics.New()
	}
	if b.log == nil {
		b.log = slog.New(slog.DiscardHandler)
	}
	if err := b.SetLimits(options.Limits); err != nil {
		return nil, err
	}
	b.receipts.ring = options.Ring
	b.traces.init(b.Limits().TraceEvents)
	b.queues.init()
	b.waiting.init()
	b.stopObserving = func() {}
	if observable, ok := options.Opener.(driver.Observable); ok {
		b.stopObserving = observable.Observe(b.observe)
	}
	return b, nil
}

// Shares returns the figures of what is divided among tenants and tokens here, for
// metrics.
func (b *Broker) Shares() []share.Stats {
	verifier := b.verifier.Stats()
	quotas := share.Stats{
		Resource: "quota meters", Used: int64(verifier.Quotas), Limit: int64(verifier.MaxQuotas),
		Owners: verifier.QuotaTenants, Refusals: verifier.QuotaRefusals,
	}
	return []share.Stats{quotas, b.inFlight.Stats(), b.census.pool.Stats(), b.waits.Stats(), b.dedup.stats(b.now()), b.work.Stats(), b.memory.Stats()}
}

// now is the time of leases: monotonic, since the broker was made.
func (b *Broker) now() time.Duration { return time.Since(b.start) }

// Metrics returns the counts, for surfaces that count what never gets here.
func (b *Broker) Metrics() *metrics.Set { return b.metrics }

// Close forgets the open queues. Call it when no surface serves any more; the
// backend is closed by who opened it. Closing twice is fine.
func (b *Broker) Close() error {
	b.SetState(StateStopped)
	b.stopObserving()
	b.logSuppressed()
	return b.queues.closeAll()
}
