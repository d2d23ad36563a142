package capability

import (
	"context"
	"crypto/sha256"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/share"
)

// How long a verifier may trust what it knows. The lower bound keeps a cache
// worth having, the upper one is how late a revocation may be at most.
const (
	DefaultCacheTTL = 30 * time.Second
	MinCacheTTL     = 5 * time.Second
	MaxCacheTTL     = 120 * time.Second
)

const (
	defaultCacheEntries = 16 << 10
	defaultQuotaTokens  = 32 << 10
	defaultBurst        = 100
	// burstWindow is how long refusals are counted together.
	burstWindow = 10 * time.Second
)

// VerifierOptions configure a Verifier. The zero value, and nil, mean the
// defaults.
type VerifierOptions struct {
	// Audience are the names of this service, for tokens with an audience.
	Audience []string
	// Revocations says which tokens were revoked. Nil means none are.
	Revocations Revocations
	// CacheTTL is how long a verified token is not verified again. What is
	// outside MinCacheTTL…MaxCacheTTL is moved to the bound; 0 means
	// DefaultCacheTTL.
	CacheTTL time.Duration
	// CacheEntries bounds how many tokens are remembered; 0 means 16,384.
	CacheEntries int
	// QuotaTokens bounds how many quotas can be in use at once; 0 means 32,768. They
	// are divided among tenants, tokens, and what these were narrowed to, so that
	// none can use up the others'. Beyond its share a token is refused, with
	// ReasonQuota, until its other quotas are free.
	QuotaTokens int
	// RefusalBurst is how many refusals within ten seconds make the verifier
	// forget what it knows; 0 means 100.
	RefusalBurst int
}

// A Verifier decides whether a token allows a request. It is safe for
// concurrent use and starts no goroutine.
type Verifier struct {
	ring    *KeyRing
	options VerifierOptions
	clock   *clock
	cache   *cache
	meter   *meter

	hits, misses, refusals, purges atomic.Uint64

	burst struct {
		sync.Mutex // guards the fields below
		began      time.Duration
		count      int
	}
}

// NewVerifier returns a verifier of the tokens of a ring.
func NewVerifier(ring *KeyRing, options *VerifierOptions) *Verifier {
	v := &Verifier{ring: ring, clock: newClock()}
	if options != nil {
		v.options = *options
	}
	o := &v.options
	if o.CacheTTL == 0 {
		o.CacheTTL = DefaultCacheTTL
	}
	o.CacheTTL = min(max(o.CacheTTL, MinCacheTTL), MaxCacheTTL)
	o.CacheEntries = orDefault(o.CacheEntries, defaultCacheEntries)
	o.QuotaTokens = orDefault(o.QuotaTokens, defaultQuotaTokens)
	o.RefusalBurst = orDefault(o.RefusalBurst, defaultBurst)
	v.cache = newCache(o.CacheEntries)
	v.meter = newMeter(v.clock, o.QuotaTokens)
	return v
}

func orDefault(n, otherwise int) int {
	if n <= 0 {
		return otherwise
	}
	return n
}

// A verdict is what is known of a genuine token.
type verdict struct {
	grant *Grant
	// voidAt is when the token was revoked or its key retired, in Unix
	// nanoseconds, and void is which; "" if neither.
	voidAt int64
	void   Reason
	// The verdict is good until then, and as long as these are the same.
	freshUntil time.Duration
	keys       *keys
	generation uint64
	weight     int // of how many small tokens it costs the memory
}

// Authorize decides whether token allows request, and returns what else it
// allows. It blocks only where the revocations do; cancelling ctx returns the
// context's error.
//
// A refusal is an *driver.Error that wraps a [Reason] and has its code:
// ErrUnauthenticated, ErrForbidden, or ErrFull with RetryAfter. Besides, it is
// ErrUnavailable if the revocations cannot be read: what may be revoked is not
// accepted.
func (v *Verifier) Authorize(ctx context.Context, token Token, request Request) (*Grant, error) {
	known, wall, err := v.verify(ctx, token, &request)
	if err != nil {
		return nil, err
	}
	return v.admit(known, &request, wall)
}

// AuthorizeUse is [Verifier.Authorize] for a request that concerns a topic as
// such, like asking for its limits: it is for whoever may do anything there.
// Request.Operation is ignored, and no quota is charged.
func (v *Verifier) AuthorizeUse(ctx context.Context, token Token, request Request) (*Grant, error) {
	known, wall, err := v.verify(ctx, token, &request)
	if err != nil {
		return nil, err
	}
	request.Operation, request.Load = known.grant.scope.operations.first(), Load{Messages: 1}
	if reason := v.judgeRequest(known, &request, wall); reason != "" {
		request.Operation = 0
		return nil, v.refuse(reason, &request, known)
	}
	return known.grant, nil
}

// Genuine reports whether a token was made with a key of the ring, and looks at
// nothing else: not even at whether it has expired. It is for who wants to know
// whether what a token says of itself is true. It blocks and fails like Authorize.
func (v *Verifier) Genuine(ctx context.Context, token Token) error {
	_, _, err := v.verify(ctx, token, &Request{})
	return err
}

// Timely is Genuine, and refuses tokens that have expired or whose time has not
// come. What it accepts may have been revoked, and is good for acks of what was
// taken before even then. It is for who wants to refuse what is good for nothing
// at all before reading what comes with it.
func (v *Verifier) Timely(ctx context.Context, token Token) error {
	_, _, err := v.timely(ctx, token)
	return err
}

// Valid is Timely, and refuses what was revoked or is of a retired key too: the
// token is good for something that is asked now.
func (v *Verifier) Valid(ctx context.Context, token Token) error {
	known, wall, err := v.timely(ctx, token)
	if err == nil && known.isVoid(wall) {
		err = v.refuse(known.void, &Request{}, known)
	}
	return err
}

func (v *Verifier) timely(ctx context.Context, token Token) (*verdict, int64, error) {
	known, wall, err := v.verify(ctx, token, &Request{})
	if err == nil {
		if reason := known.grant.scope.checkTime(wall); reason != "" {
			err = v.refuse(reason, &Request{}, known)
		}
	}
	return known, wall, err
}

// verify returns what is known of a genuine token, and the time.
func (v *Verifier) verify(ctx context.Context, token Token, request *Request) (*verdict, int64, error) {
	binary := token.binary.bytes()
	if len(binary) == 0 {
		return nil, 0, v.refuse(ReasonMissing, request, nil)
	}
	wall, passed := v.clock.now()
	key := cacheKey(sha256.Sum256(binary))
	known := v.cache.get(&key, passed)
	if known != nil && v.current(known) {
		v.hits.Add(1)
		return known, wall, nil
	}
	v.misses.Add(1)
	known, reason, err := v.examine(ctx, binary, passed)
	switch {
	case err != nil:
		return nil, 0, err
	case reason != "":
		return nil, 0, v.refuse(reason, request, known)
	}
	known.weight = 1 + len(binary)/cacheUnit
	v.cache.put(&key, known)
	return known, wall, nil
}

// current reports whether nothing has changed since the verdict was made.
func (v *Verifier) current(known *verdict) bool {
	return known.keys == v.ring.keys.Load() && known.generation == v.generation()
}

func (v *Verifier) generation() uint64 {
	if v.options.Revocations == nil {
		return 0
	}
	return v.options.Revocations.Generation()
}

// examine verifies a token from scratch.
func (v *Verifier) examine(ctx context.Context, binary []byte, passed time.Duration) (*verdict, Reason, error) {
	var m macaroon
	if !m.parse(binary) {
		return nil, ReasonMalformed, nil
	}
	return v.judge(ctx, &m, passed, func(computed *chain) bool { return computed.equals(m.signature) })
}

// judge computes the signature that a token must have, asks genuine whether it
// has it, and looks at everything else afterwards.
func (v *Verifier) judge(ctx context.Context, m *macaroon, passed time.Duration, genuine func(computed *chain) bool) (*verdict, Reason, error) {
	// Both are read before what they may change, so that a change in between
	// makes the verdict old and not wrong.
	known := &verdict{freshUntil: passed + v.options.CacheTTL, keys: v.ring.keys.Load(), generation: v.generation()}
	id, ok := parseIdentifier(m.identifier)
	if !ok {
		return nil, ReasonMalformed, nil
	}
	key, found := v.ring.dummy, false
	if i := known.keys.index(id.key); i >= 0 {
		key, found = known.keys.list[i], true
	}
	var computed chain
	computed.of(key.rootKey(id.tenant), m)
	if !genuine(&computed) || !found {
		return nil, ReasonNotGenuine, nil
	}
	known.grant = &Grant{identifier: id, meter: v.meter}
	if reason := known.grant.scope.of(m, &id); reason != "" {
		return known, reason, nil
	}
	if !key.retiredAt.IsZero() {
		known.voidAt, known.void = key.retiredAt.UnixNano(), ReasonKeyRetired
	}
	return known, "", v.askRevocations(ctx, known, m)
}

func (v *Verifier) askRevocations(ctx context.Context, known *verdict, m *macaroon) error {
	if v.options.Revocations == nil {
		return nil
	}
	err := v.askRevocation(ctx, known, known.grant.ID(), known.grant.identifier.tenant)
	for _, maker := range known.grant.scope.makers {
		tenant := ""
		if maker.ofTenant {
			tenant = known.grant.identifier.tenant
		}
		if err == nil {
			err = v.askRevocation(ctx, known, maker.token, tenant)
		}
	}
	if err == nil {
		err = v.askNarrowed(ctx, known, m)
	}
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return &driver.Error{Code: driver.ErrUnavailable, Op: "authorize", Detail: "revocations cannot be read", Err: err}
	}
	return nil
}

// askRevocation makes the verdict void if a token was revoked.
func (v *Verifier) askRevocation(ctx context.Context, known *verdict, token TokenID, tenant string) error {
	since, revoked, err := v.options.Revocations.Revoked(ctx, token, tenant)
	if err == nil && revoked && (known.void == "" || since.UnixNano() < known.voidAt) {
		known.voidAt, known.void = since.UnixNano(), ReasonRevoked
	}
	return err
}

// ownerOf names the share that a token's quotas count against: tenant, minted token,
// and the parts of the token that end with each of its first caveats.
func ownerOf(m *macaroon, id *identifier) share.Path {
	depth := min(m.count, meterDepth)
	owner := make(share.Path, 0, 2+depth)
	owner = append(owner, share.Key{Name: id.tenant}, share.Key{ID: id.token})
	for i := range depth {
		sum := sha256.Sum256(m.body[:m.caveats[i].end])
		owner = append(owner, share.Key{ID: [16]byte(sum[:])})
	}
	return owner
}

// of makes the scope that of a token. It returns "" or why the token is good for
// nothing.
func (s *scope) of(m *macaroon, id *identifier) Reason {
	if id.tenant != "" {
		s.tenants = append(s.tenants, id.tenant)
	}
	for i := range m.count {
		quotas, makers := len(s.quotas), len(s.makers)
		if reason := s.add(string(m.caveat(i))); reason != "" {
			return reason
		}
		if len(s.makers) > makers {
			s.makers[makers].caveats = i
		}
		if len(s.quotas) > quotas {
			sum := sha256.Sum256(m.body[:m.caveats[i].end])
			s.quotas[quotas].bucket = bucketID(sum[:])
			s.quotas[quotas].depth = 2 + min(i+1, meterDepth)
		}
	}
	if len(s.quotas) > 0 {
		s.owner = ownerOf(m, id)
	}
	if !s.complete() {
		return ReasonUnscoped
	}
	return ""
}

// admit decides about a request with a genuine token, at this wall time.
func (v *Verifier) admit(known *verdict, request *Request, wall int64) (*Grant, error) {
	g := known.grant
	if reason := v.judgeRequest(known, request, wall); reason != "" {
		return nil, v.refuse(reason, request, known)
	}
	if len(g.scope.quotas) > 0 && metered.has(request.Operation) {
		if retryAfter, ok := v.meter.take(g, request); !ok {
			return nil, refusal(ReasonQuota, request, &g.scope, retryAfter)
		}
	}
	return g, nil
}

// judgeRequest returns "" or why a genuine token does not cover a request now.
func (v *Verifier) judgeRequest(known *verdict, request *Request, wall int64) Reason {
	if reason := known.grant.scope.checkTime(wall); reason != "" {
		return reason
	}
	if known.isVoid(wall) && !known.settlesEarlierLease(request) {
		return known.void
	}
	return known.grant.scope.check(request, v.options.Audience)
}

// isVoid reports whether the token is void at this wall time. A key can be retired
// in advance. A revocation has happened, even if the clock of who made it is ahead.
func (k *verdict) isVoid(wall int64) bool {
	return k.void == ReasonRevoked || k.void != "" && wall >= k.voidAt
}

// settlesEarlierLease reports whether the request acks a delivery that was taken
// with the token before it became void. Such an ack is honoured, or work that
// was begun in good faith would be done twice.
func (k *verdict) settlesEarlierLease(r *Request) bool {
	return r.Operation == OpAck && r.Lease.Token == k.grant.ID() && !r.Lease.TakenAt.IsZero() && r.Lease.TakenAt.UnixNano() < k.voidAt
}

// refuse makes the error and counts it. Many refusals at once may mean that
// something has changed that the cache does not know of, so it is forgotten.
func (v *Verifier) refuse(reason Reason, request *Request, known *verdict) error {
	v.refusals.Add(1)
	if v.burstEnds(v.clock.monotonic()) {
		v.Purge()
	}
	var s *scope
	if known != nil {
		s = &known.grant.scope
	}
	return refusal(reason, request, s, 0)
}

// burstEnds counts a refusal and reports whether it is the one too many of its
// window. There is one such in a window, however many refusals follow, so that a
// flood of bad tokens does not keep good ones from being remembered.
func (v *Verifier) burstEnds(now time.Duration) bool {
	b := &v.burst
	b.Lock()
	defer b.Unlock()
	if b.count == 0 || now-b.began >= burstWindow {
		b.began, b.count = now, 0
	}
	b.count++
	return b.count == v.options.RefusalBurst
}

// Purge forgets all verified tokens, so that each is verified again at its next
// use. Changes of the key ring and of local revocations are noticed without it.
func (v *Verifier) Purge() {
	v.purges.Add(1)
	v.cache.purge()
}

// VerifierStats are counts of what a verifier did, and its fill.
type VerifierStats struct {
	// Hits and Misses are tokens that were and were not remembered.
	Hits, Misses uint64
	// Refusals are those for every reason but ReasonQuota.
	Refusals uint64
	// Purges is how often everything was forgotten.
	Purges uint64
	// Entries is how many tokens are remembered, of MaxEntries at most.
	Entries, MaxEntries int
	// ClockBehind is how far the wall clock is behind the latest time that the
	// verifier has seen. More than a moment means that somebody turned it back;
	// until it has caught up, or the process is started anew, tokens expire
	// earlier by as much.
	ClockBehind time.Duration
	// Quotas is how many quotas are in use, of MaxQuotas at most, by QuotaTenants;
	// QuotaRefusals were refused because a share was used up.
	Quotas, MaxQuotas, QuotaTenants int
	QuotaRefusals                   uint64
}

// Stats returns the counts so far.
func (v *Verifier) Stats() VerifierStats {
	quotas := v.meter.pool.Stats()
	return VerifierStats{
		Hits: v.hits.Load(), Misses: v.misses.Load(), Refusals: v.refusals.Load(), Purges: v.purges.Load(),
		Entries: v.cache.entries(), MaxEntries: 2 * v.cache.half * cacheShards, ClockBehind: v.clock.behind(),
		Quotas: int(quotas.Used), MaxQuotas: int(quotas.Limit), QuotaTenants: quotas.Owners, QuotaRefusals: quotas.Refusals,
	}
}
