package verify

import (
	"bytes"
	"context"
	"crypto/sha256"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/keyring"
	"github.com/mailboxmq/mailbox/internal/macaroon"
	"github.com/mailboxmq/mailbox/internal/share"
)

// How long a verifier may use a cached verdict. The lower bound keeps the cache
// useful; the upper one bounds how late a revocation takes effect.
const (
	DefaultCacheTTL = 30 * time.Second
	MinCacheTTL     = 5 * time.Second
	MaxCacheTTL     = 120 * time.Second
)

const (
	defaultCacheEntries = 16 << 10
	defaultQuotaTokens  = 32 << 10
	defaultBurst        = 100
	// burstWindow is the time over which refusals are counted together.
	burstWindow = 10 * time.Second
)

// Revocations tells a [Verifier] which tokens were revoked. A service
// implements it on its storage.
type Revocations interface {
	// Revoked reports whether a token, or all tokens of its tenant, were
	// revoked, and since when. The verifier calls it with the minted id of a token
	// and its tenant, and with narrowed ids without a tenant. It may block on I/O.
	// The verifier calls it again after CacheTTL at the latest. An error means that
	// the answer is not known, and the token is refused.
	Revoked(ctx context.Context, token capability.TokenID, tenant string) (since time.Time, revoked bool, err error)

	// Generation changes whenever a result of Revoked may have changed, as far as
	// this process knows. It does no I/O; the verifier calls it for every request.
	Generation() uint64
}

// Options configure a Verifier. The zero value, and nil, mean the
// defaults.
type Options struct {
	// Audience are the names of this service, for tokens with an audience.
	Audience []string
	// Revocations tells which tokens were revoked. Nil means none are.
	Revocations Revocations
	// CacheTTL is how long a verified token is cached. It is limited to
	// MinCacheTTL…MaxCacheTTL; 0 means DefaultCacheTTL.
	CacheTTL time.Duration
	// CacheEntries bounds how many tokens are cached; 0 means 16,384.
	CacheEntries int
	// QuotaTokens bounds how many quotas can be in use at once; 0 means 32,768. They
	// are divided among tenants, minted tokens and narrowed tokens, so that none can
	// use up the share of another. A token that exceeds its share is refused, with
	// ReasonQuota, until one of its quotas is free.
	QuotaTokens int
	// RefusalBurst is how many refusals within ten seconds make the verifier
	// purge its cache; 0 means 100.
	RefusalBurst int
}

// A Verifier decides whether a token allows a request. It is safe for
// concurrent use and starts no goroutine.
type Verifier struct {
	ring    *keyring.Ring
	dummy   keyring.Key // verifies tokens of unknown keys, so that refusing them takes as long
	options Options
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

// New returns a verifier for the tokens of a ring.
func New(ring *keyring.Ring, options *Options) *Verifier {
	v := &Verifier{ring: ring, dummy: keyring.NewKey(), clock: newClock()}
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

// A verdict is the result of verifying a genuine token.
type verdict struct {
	grant *Grant
	// voidAt is when the token was revoked or its key retired, in Unix
	// nanoseconds, and void is which of them; "" if neither.
	voidAt int64
	void   capability.Reason
	// The verdict holds until freshUntil, while keys and generation are unchanged.
	freshUntil time.Duration
	keys       uint64 // the generation of the key ring
	generation uint64 // that of the revocations
	weight     int    // its memory, in units of a small token
}

// Authorize decides whether token allows request, and returns a [Grant] if it does.
// It blocks only where the revocations do; cancelling ctx returns the context's
// error.
//
// A refusal is a *driver.Error that wraps a [Reason] and has its code:
// ErrUnauthenticated, ErrForbidden, or ErrFull with RetryAfter. If the revocations
// cannot be read, the token is refused with ErrUnavailable and without a reason.
func (v *Verifier) Authorize(ctx context.Context, token capability.Token, request Request) (*Grant, error) {
	known, wall, err := v.verify(ctx, token, &request)
	if err != nil {
		return nil, err
	}
	return v.admit(known, &request, wall)
}

// AuthorizeUse is [Verifier.Authorize] for a request about the queue as such, like
// reading its limits: a token with any operation on the queue allows it.
// Request.Operation is ignored, and no quota is charged.
func (v *Verifier) AuthorizeUse(ctx context.Context, token capability.Token, request Request) (*Grant, error) {
	known, wall, err := v.verify(ctx, token, &request)
	if err != nil {
		return nil, err
	}
	request.Operation, request.Load = first(known.grant.scope.Operations), Load{Messages: 1}
	if reason := v.checkRequest(known, &request, wall); reason != "" {
		request.Operation = 0
		return nil, v.refuse(reason, &request, known)
	}
	return known.grant, nil
}

// first returns the first operation of a set, and the zero Operation if it is empty.
func first(set macaroon.OperationSet) capability.Operation {
	if list := set.List(); len(list) > 0 {
		return capability.Operation(list[0])
	}
	return 0
}

// Genuine checks that a token was signed with a key of the ring, and nothing else,
// not even its expiry. It tells whether the id and the tenant of the token are
// authentic. It blocks and fails like Authorize.
func (v *Verifier) Genuine(ctx context.Context, token capability.Token) error {
	_, _, err := v.verify(ctx, token, &Request{})
	return err
}

// Timely is Genuine, and also refuses tokens that have expired or are not yet valid.
// It accepts revoked tokens, which still allow acks of deliveries received before.
// It is for refusing a useless token before the body of its request is read.
func (v *Verifier) Timely(ctx context.Context, token capability.Token) error {
	_, _, err := v.timely(ctx, token)
	return err
}

// Valid is Timely, and also refuses tokens that were revoked or whose key was
// retired: the token allows at least one request now.
func (v *Verifier) Valid(ctx context.Context, token capability.Token) error {
	known, wall, err := v.timely(ctx, token)
	if err == nil && known.isVoid(wall) {
		err = v.refuse(known.void, &Request{}, known)
	}
	return err
}

func (v *Verifier) timely(ctx context.Context, token capability.Token) (*verdict, int64, error) {
	known, wall, err := v.verify(ctx, token, &Request{})
	if err == nil {
		if reason := known.grant.scope.checkTime(wall); reason != "" {
			err = v.refuse(reason, &Request{}, known)
		}
	}
	return known, wall, err
}

// verify returns the verdict on a genuine token, and the wall time.
func (v *Verifier) verify(ctx context.Context, token capability.Token, request *Request) (*verdict, int64, error) {
	var room [512]byte // on the stack; larger tokens are rare
	return v.verifyBinary(ctx, token.RevealBinary(room[:0]), request)
}

// verifyBinary is verify for a token in its binary form, of which it keeps nothing.
func (v *Verifier) verifyBinary(ctx context.Context, binary []byte, request *Request) (*verdict, int64, error) {
	if len(binary) == 0 {
		return nil, 0, v.refuse(capability.ReasonMissing, request, nil)
	}
	wall, passed := v.clock.now()
	key := cacheKey(sha256.Sum256(binary))
	known := v.cache.get(&key, passed)
	if known != nil && v.current(known) {
		v.hits.Add(1)
		return known, wall, nil
	}
	v.misses.Add(1)
	known, reason, err := v.examine(ctx, bytes.Clone(binary), passed)
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

// current reports whether keys and revocations are unchanged since the verdict.
func (v *Verifier) current(known *verdict) bool {
	return known.keys == v.ring.Generation() && known.generation == v.generation()
}

func (v *Verifier) generation() uint64 {
	if v.options.Revocations == nil {
		return 0
	}
	return v.options.Revocations.Generation()
}

// examine verifies a token without the cache.
func (v *Verifier) examine(ctx context.Context, binary []byte, passed time.Duration) (*verdict, capability.Reason, error) {
	var m macaroon.Macaroon
	if !m.Parse(binary) {
		return nil, capability.ReasonMalformed, nil
	}
	return v.examineMacaroon(ctx, &m, passed, func(computed *macaroon.Chain) bool { return computed.Equals(m.Signature) })
}

// examineMacaroon computes the signature that a token must have, calls genuine to
// compare it, and checks everything else only after that.
func (v *Verifier) examineMacaroon(ctx context.Context, m *macaroon.Macaroon, passed time.Duration, genuine func(computed *macaroon.Chain) bool) (*verdict, capability.Reason, error) {
	// Keys and generation are read first, so that a change during the verification
	// makes the verdict outdated and not wrong.
	known := &verdict{freshUntil: passed + v.options.CacheTTL, keys: v.ring.Generation(), generation: v.generation()}
	id, ok := macaroon.ParseIdentifier(m.Identifier)
	if !ok {
		return nil, capability.ReasonMalformed, nil
	}
	key, found := v.dummy, false
	for _, each := range v.ring.Keys() {
		if uint32(each.ID()) == id.Key {
			key, found = each, true
		}
	}
	var computed macaroon.Chain
	computed.Of(macaroon.RootKey(key.Reveal(), id.Tenant), m)
	if !genuine(&computed) || !found {
		return nil, capability.ReasonNotGenuine, nil
	}
	known.grant = &Grant{identifier: id, meter: v.meter}
	if reason := known.grant.scope.load(m, &id); reason != "" {
		return known, reason, nil
	}
	if !key.RetiredAt().IsZero() {
		known.voidAt, known.void = key.RetiredAt().UnixNano(), capability.ReasonKeyRetired
	}
	return known, "", v.askRevocations(ctx, known, m)
}

func (v *Verifier) askRevocations(ctx context.Context, known *verdict, m *macaroon.Macaroon) error {
	if v.options.Revocations == nil {
		return nil
	}
	err := v.askRevocation(ctx, known, known.grant.ID(), known.grant.identifier.Tenant)
	for _, minter := range known.grant.scope.Minters {
		tenant := ""
		if minter.OfTenant {
			tenant = known.grant.identifier.Tenant
		}
		if err == nil {
			err = v.askRevocation(ctx, known, minter.Token, tenant)
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

// askRevocation makes the verdict void if the token with this id was revoked.
func (v *Verifier) askRevocation(ctx context.Context, known *verdict, token capability.TokenID, tenant string) error {
	since, revoked, err := v.options.Revocations.Revoked(ctx, token, tenant)
	if err == nil && revoked && (known.void == "" || since.UnixNano() < known.voidAt) {
		known.voidAt, known.void = since.UnixNano(), capability.ReasonRevoked
	}
	return err
}

// askNarrowed makes the verdict void if the token, or a token that it was narrowed
// from, was revoked by its narrowed id. It checks the tokens that it was minted with
// too: a minted token begins with the caveats of its minter, so the narrowed ids of
// the minter can be computed here.
func (v *Verifier) askNarrowed(ctx context.Context, known *verdict, m *macaroon.Macaroon) error {
	// The hashes are not needed if no narrowed token is revoked.
	if r, ok := v.options.Revocations.(interface{ RevokesNarrowed() bool }); ok && !r.RevokesNarrowed() {
		return nil
	}
	ask := func(minted capability.TokenID, count int) error {
		for id := range macaroon.NarrowedIDs(minted, m, count) {
			if err := v.askRevocation(ctx, known, id, ""); err != nil {
				return err
			}
		}
		return nil
	}
	err := ask(known.grant.ID(), m.Count)
	for _, minter := range known.grant.scope.Minters {
		if err == nil {
			err = ask(minter.Token, minter.Caveats)
		}
	}
	return err
}

// ownerOf returns the share that a token's quotas count against: its tenant, the
// minted token, and the parts of the token up to each of its first caveats.
func ownerOf(m *macaroon.Macaroon, id *macaroon.Identifier) share.Path {
	depth := min(m.Count, meterDepth)
	owner := make(share.Path, 0, 2+depth)
	owner = append(owner, share.Key{Name: id.Tenant}, share.Key{ID: id.Token})
	for i := range depth {
		sum := sha256.Sum256(m.Through(i))
		owner = append(owner, share.Key{ID: [16]byte(sum[:])})
	}
	return owner
}

// load sets the scope to that of a token. It returns "", or why the token is always
// refused.
func (s *scope) load(m *macaroon.Macaroon, id *macaroon.Identifier) capability.Reason {
	if id.Tenant != "" {
		s.Tenants = append(s.Tenants, id.Tenant)
	}
	for i := range m.Count {
		quotas, minters := len(s.Quotas), len(s.Minters)
		if fault := s.Add(string(m.Caveat(i))); fault != "" {
			return capability.Reason(fault)
		}
		if len(s.Minters) > minters {
			s.Minters[minters].Caveats = i
		}
		if len(s.Quotas) > quotas {
			sum := sha256.Sum256(m.Through(i))
			s.Quotas[quotas].Bucket = [16]byte(sum[:])
			s.Quotas[quotas].Depth = 2 + min(i+1, meterDepth)
		}
	}
	if len(s.Quotas) > 0 {
		s.owner = ownerOf(m, id)
	}
	if !s.Complete() {
		return ReasonUnscoped
	}
	return ""
}

// admit decides about a request with a genuine token at the given wall time.
func (v *Verifier) admit(known *verdict, request *Request, wall int64) (*Grant, error) {
	g := known.grant
	if reason := v.checkRequest(known, request, wall); reason != "" {
		return nil, v.refuse(reason, request, known)
	}
	if len(g.scope.Quotas) > 0 && !request.Unmetered && meteredOperations.Has(uint8(request.Operation)) {
		if retryAfter, ok := v.meter.take(g, request); !ok {
			return nil, refusal(capability.ReasonQuota, request, &g.scope, retryAfter)
		}
	}
	return g, nil
}

// checkRequest returns "", or why a genuine token does not allow the request now.
func (v *Verifier) checkRequest(known *verdict, request *Request, wall int64) capability.Reason {
	if reason := known.grant.scope.checkTime(wall); reason != "" {
		return reason
	}
	if known.isVoid(wall) && !known.settlesEarlierLease(request) {
		return known.void
	}
	return known.grant.scope.check(request, v.options.Audience)
}

// isVoid reports whether the token is void at the given wall time. A key can be
// retired in advance. A revocation counts at once, even if the clock of the process
// that made it is ahead.
func (k *verdict) isVoid(wall int64) bool {
	return k.void == capability.ReasonRevoked || k.void != "" && wall >= k.voidAt
}

// settlesEarlierLease reports whether the request acks a delivery that was received
// with the token before it became void. Such an ack is honoured; otherwise the work
// would be done twice.
func (k *verdict) settlesEarlierLease(r *Request) bool {
	return r.Operation == capability.OpAck && r.Lease.Token == k.grant.ID() && !r.Lease.TakenAt.IsZero() && r.Lease.TakenAt.UnixNano() < k.voidAt
}

// refuse makes the error of a refusal and counts it. Many refusals at once may mean
// that the cache is outdated, so a burst purges it.
func (v *Verifier) refuse(reason capability.Reason, request *Request, known *verdict) error {
	v.refusals.Add(1)
	if v.burstEnds(v.clock.monotonic()) {
		v.purge()
	}
	var s *scope
	if known != nil {
		s = &known.grant.scope
	}
	return refusal(reason, request, s, 0)
}

// burstEnds counts a refusal and reports whether it reaches RefusalBurst. That
// happens at most once in a window, so that a flood of bad tokens cannot keep the
// cache empty.
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

// purge empties the cache, so that each token is verified again at its next use.
// Changes of the key ring and of local revocations take effect without it.
func (v *Verifier) purge() {
	v.purges.Add(1)
	v.cache.purge()
}

// Stats are counters and sizes of a verifier.
type Stats struct {
	// Hits and Misses count tokens that were and were not in the cache.
	Hits, Misses uint64
	// Refusals counts refusals for every reason except ReasonQuota.
	Refusals uint64
	// Purges counts how often the cache was emptied.
	Purges uint64
	// Entries is how many tokens are cached, at most MaxEntries.
	Entries, MaxEntries int
	// ClockBehind is how far the wall clock is behind the latest time that the
	// verifier has seen. More than a moment means that the clock was set back;
	// until it has caught up, or the process restarts, tokens expire earlier by
	// that much.
	ClockBehind time.Duration
	// Quotas is how many quotas are in use, at most MaxQuotas, by QuotaTenants
	// tenants. QuotaRefusals counts refusals because a share was used up.
	Quotas, MaxQuotas, QuotaTenants int
	QuotaRefusals                   uint64
}

// Stats returns the counts so far.
func (v *Verifier) Stats() Stats {
	quotas := v.meter.pool.Stats()
	return Stats{
		Hits: v.hits.Load(), Misses: v.misses.Load(), Refusals: v.refusals.Load(), Purges: v.purges.Load(),
		Entries: v.cache.entries(), MaxEntries: 2 * v.cache.half * cacheShards, ClockBehind: v.clock.behind(),
		Quotas: int(quotas.Used), MaxQuotas: int(quotas.Limit), QuotaTenants: quotas.Owners, QuotaRefusals: quotas.Refusals,
	}
}
