package broker

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/audit"
	"github.com/mailboxmq/mailbox/internal/keyring"
	"github.com/mailboxmq/mailbox/internal/share"
	"github.com/mailboxmq/mailbox/internal/verify"
	"github.com/mailboxmq/mailbox/server/internal/metrics"
)

// Options configure a Broker.
type Options struct {
	// Opener is the backend. The broker does not close it. The broker counts dead
	// letters if the backend is a driver.Observable.
	Opener driver.Opener
	// Ring holds the keys that seal receipts. Verifier verifies tokens of the same
	// ring.
	Ring     *keyring.Ring
	Verifier *verify.Verifier
	// Replies keeps reply slots; nil refuses slots. A driver.LinkedReplyStore must be that of
	// Opener. The broker does not close it.
	Replies driver.ReplyStore
	// Backend is the name of the backend, for errors; it may be empty.
	Backend string
	// Shared says that other daemons, also of earlier versions, may be on the same
	// backend. Receipts are then of a form that all of them open.
	Shared bool
	// Revocations are those that the verifier consults; nil refuses to revoke.
	Revocations Revoker
	// Keeper changes the keys of Ring; nil refuses to change them.
	Keeper KeyKeeper
	// Audit keeps what is changed; nil keeps it in memory. The broker does not close it.
	Audit AuditLog
	// Operator returns the daemon's own token, which may always read Audit; nil: there is none.
	Operator func() capability.Token
	// Backups backs the daemon up; nil refuses backups.
	Backups Backups
	Limits  Limits
	// Metrics are the counters; nil counts in a set that is not exported.
	Metrics *metrics.Set
	// Logger gets refusals, and what happens to messages without a request, such as
	// dead-lettering. Nil logs nothing.
	Logger *slog.Logger
}

// A Broker executes the operations of a daemon. It is safe for concurrent use and has
// no goroutines but those of RunSchedules, RunHistory, its jobs, and one while queues are watched: otherwise it works
// only while a method runs.
type Broker struct {
	opener      driver.Opener
	backend     string                // its name, or empty
	admin       driver.Admin          // nil if the backend has no driver.Admin
	replies     driver.ReplyStore     // nil: slots are refused
	lister      driver.ScheduleLister // nil if the backend has none: schedules are refused, because they would not be run
	verifier    *verify.Verifier
	ring        *keyring.Ring
	revocations Revoker
	keeper      KeyKeeper
	backups     Backups
	audit       AuditLog
	operator    func() capability.Token
	limits      atomic.Pointer[Limits]
	metrics     *metrics.Set
	log         *slog.Logger

	start     time.Time // zero of the clock that leases use
	queues    queueTable
	census    census
	scheduler scheduler
	slots     slotTable
	histories histories
	sources   sourceTable
	watches   watchTable
	jobs      jobTable
	receipts  sealer
	traces    traceTable
	state     atomic.Int32 // a State
	waiting   waitTable
	leasePools
	waits  *share.Pool // divides the receives that wait
	dedup  dedupKeys
	unique uniqueKeys
	// work bounds the operations on the backend, in turns, and memory the bytes of
	// requests and answers.
	work, memory *share.Gate
	// refusals bounds the refusals of shares, creations the queues that are created, openings those
	// that are opened, looks the bytes that are peeked at, and strangers the requests without a
	// genuine token, by the second.
	refusals, creations, openings, looks, strangers *share.Gate
	// sweptAt is when expired leases were last removed, and sweepPause the time until
	// the next sweep.
	sweptAt, sweepPause atomic.Int64

	messageLines  logLimiter
	keylessLines  logLimiter
	stopObserving func()
	// forgedLines and refusedLines bound the log lines about refused tokens.
	forgedLines, refusedLines logLimiter

	measuring  sync.Mutex // held while the queues are measured
	measuredAt atomic.Int64
	deadFull   atomic.Int64 // queues at MaxDead
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
		opener: options.Opener, replies: options.Replies, backend: options.Backend, verifier: options.Verifier, ring: options.Ring, revocations: options.Revocations, keeper: options.Keeper, backups: options.Backups,
		audit: options.Audit, operator: options.Operator,
		metrics: options.Metrics, log: options.Logger, start: time.Now(),
	}
	b.inFlight = share.New("in-flight", "global_inflight", 0, retryInFlight)
	b.initTurns()
	b.workers = newWorkerPool()
	b.dedup.init()
	b.unique.init()
	b.scheduler.init()
	b.slots.init()
	b.histories.init()
	b.sources.init()
	b.watches.init()
	b.jobs.init()
	b.census.pool = share.New("queues", "max_topics", 0, retryQueues)
	b.census.madeBy = make(map[string]capability.TokenID)
	b.waits = share.New("waiting receives", "max_waiting", 0, retryWaits)
	b.admin, _ = options.Opener.(driver.Admin)
	b.lister, _ = options.Opener.(driver.ScheduleLister)
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
	b.receipts.ring, b.receipts.version = options.Ring, receiptCiphered
	if options.Shared {
		b.receipts.version = receiptHashed
	}
	b.traces.init(b.Limits().TraceEvents)
	b.queues.init()
	b.waiting.init()
	b.slots.restore(b.replies, b.log)
	b.stopObserving = func() {}
	if observable, ok := options.Opener.(driver.Observable); ok {
		b.stopObserving = observable.Observe(b.observe)
	}
	return b, nil
}

// Shares returns the figures of the resources that tenants and tokens share, for
// metrics.
func (b *Broker) Shares() []share.Stats {
	verifier := b.verifier.Stats()
	quotas := share.Stats{
		Resource: "quota meters", Used: int64(verifier.Quotas), Limit: int64(verifier.MaxQuotas),
		Owners: verifier.QuotaTenants, Refusals: verifier.QuotaRefusals,
	}
	return []share.Stats{quotas, b.inFlight.Stats(), b.census.pool.Stats(), b.scheduler.pool.Stats(), b.slots.pool.Stats(), b.slots.bytes.Stats(), b.waits.Stats(), b.workers.Stats(), b.jobs.pool.Stats(), b.watches.pool.Stats(), b.dedup.stats(b.now()), b.unique.pool.Stats(), b.work.Stats(), b.memory.Stats(), b.refusals.Stats(), b.creations.Stats(), b.looks.Stats(), b.strangers.Stats()}
}

// now returns the time of leases: monotonic, since New.
func (b *Broker) now() time.Duration { return time.Since(b.start) }

// Metrics returns the counters, for surfaces that refuse requests before the broker
// sees them.
func (b *Broker) Metrics() *metrics.Set { return b.metrics }

// Close closes the open queues. Call it when no surface serves any more. It does not
// close the backend. Closing twice is fine.
func (b *Broker) Close() error {
	b.SetState(StateStopped)
	b.StopJobs()
	b.stopObserving()
	b.slots.close()
	b.stopCollecting()
	b.logSuppressed()
	return b.queues.closeAll()
}
