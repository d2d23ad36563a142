package capability

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// Revocations tells a [Verifier] which tokens were revoked. [MemoryRevocations]
// and [FileRevocations] implement it; a service of several processes implements
// it on what they share.
type Revocations interface {
	// Revoked reports whether a token, or all tokens of its tenant, were
	// revoked, and since when. It is asked for the minted id of a token with its
	// tenant, and for narrowed ids without one. It may block on I/O, and is asked again after
	// the verifier's CacheTTL at the latest. An error means that this cannot be
	// known, and the token is not accepted.
	Revoked(ctx context.Context, token TokenID, tenant string) (since time.Time, revoked bool, err error)

	// Generation changes whenever an answer may have changed, as far as this
	// process knows. It does no I/O; it is asked for every request.
	Generation() uint64
}

// A Revocation is an entry: of one token, or of the tokens of a tenant. Exactly
// one of Token and Tenant is set.
type Revocation struct {
	// Token is revoked together with everything narrowed from it, and everything
	// minted with it. It is the id of a minted token, or that of a narrowed one
	// ([Token.NarrowedID]).
	Token TokenID
	// Tenant's tokens that were minted up to At are revoked, by the clock of
	// who minted them. A token of another tenant that was narrowed to this one
	// is not one of them.
	Tenant string
	// At is when it was revoked: acks of deliveries taken before are honoured.
	At time.Time
	// Until is when the entry can be forgotten, because all tokens that it
	// concerns have expired; zero means never. It is forgotten a day later, for
	// the sake of clocks.
	Until time.Time
	// Share says in whose share of MaxRevocations an entry of a token is counted;
	// see ShareOf.
	Share uint64
}

// forgetAfter is added to Revocation.Until: a clock that goes ahead by less must
// not make a revoked token good.
const forgetAfter = 24 * time.Hour

func (r *Revocation) check() error {
	switch {
	case r.Token.IsZero() == (r.Tenant == ""):
		return invalid("revocation", "want either a token or a tenant")
	case r.Tenant != "" && checkTenant(r.Tenant) != nil:
		return checkTenant(r.Tenant)
	case !validMillis(r.At):
		return invalid("At", "want a time of the years 1970 to 9999")
	case !r.Until.IsZero() && (!validMillis(r.Until) || r.Until.Before(r.At)):
		return invalid("Until", "want a time after At, or none")
	case r.Share != 0 && r.Tenant != "":
		return invalid("Share", "is for entries of tokens")
	}
	return nil
}

func validMillis(t time.Time) bool {
	year := t.UTC().Year()
	return year >= 1970 && year <= 9999
}

// Forgettable reports whether the entry is of no use any more, by more than any
// clock is wrong: everything that it concerns has expired, or was minted with keys
// that are not accepted any more. acceptsSince is [KeyRing.AcceptsSince]; zero means
// that it is not known. What was minted with a revoked token was minted before it
// was revoked, perhaps with a later key than the token, which is why At is compared.
func (r Revocation) Forgettable(now, acceptsSince time.Time) bool {
	expired := !r.Until.IsZero() && now.After(r.Until.Add(forgetAfter))
	return expired || acceptsSince.After(r.At.Add(forgetAfter))
}

// MaxRevocations bounds how many revocations are kept.
const MaxRevocations = 1 << 18

// MaxShareRevocations bounds how many of them can have the same Share, so that
// no tenant leaves others without room. Who has more to revoke revokes all tokens
// of the tenant.
const MaxShareRevocations = 1 << 12

// ShareOf returns the share of a tenant; that of the empty one, and so of who
// runs the service, is 0, which has no bound of its own.
func ShareOf(tenant string) uint64 {
	if tenant == "" {
		return 0
	}
	sum := sha256.Sum256([]byte(tenant))
	return binary.BigEndian.Uint64(sum[:])
}

// MemoryRevocations keep revocations for as long as the process lives, for
// services that keep nothing else either. The zero value is empty and ready. It
// is safe for concurrent use.
type MemoryRevocations struct {
	generation atomic.Uint64

	mu          sync.RWMutex // guards the fields below
	tokens      map[TokenID]Revocation
	tenants     map[string]Revocation
	shares      map[uint64]int // how many entries of tokens have each share but 0
	narrowed    int            // entries of narrowed tokens
	sinceForget int            // entries added since the last look for what to forget
	since       time.Time      // what was revoked a day before is of no use; see ForgetBefore
	limit       int            // MaxRevocations if 0; tests have less patience
}

// Revoke adds an entry. One for a token that was revoked before changes nothing
// but Until, and one for a tenant that was revoked before extends it to tokens
// minted since; the later Until counts. It does not block. Codes: ErrInvalid,
// ErrFull (MaxRevocations, MaxShareRevocations).
func (m *MemoryRevocations) Revoke(_ context.Context, r Revocation) error {
	if err := r.check(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.roomLocked(&r); err != nil {
		return err
	}
	m.addLocked(r)
	return nil
}

func revocationsFull(limit int, advice string) error {
	return &driver.Error{
		Code: driver.ErrFull, Op: "revoke",
		Detail: fmt.Sprintf("there are %d revocations, the most that are kept; %s", limit, advice),
	}
}

// roomLocked returns ErrFull if r cannot be added. Now and then, and if there is no
// room, it forgets what can be forgotten; so rarely that looking at everything
// costs next to nothing for each entry.
func (m *MemoryRevocations) roomLocked(r *Revocation) error {
	const atLeast = 64
	limit := orDefault(m.limit, MaxRevocations)
	full := func() bool { return m.countLocked() >= limit }
	shareFull := func() bool { return r.Share != 0 && m.shares[r.Share] >= MaxShareRevocations }
	if m.sinceForget > max(atLeast, m.countLocked()/2) || full() || shareFull() {
		m.forgetLocked(time.Now())
	}
	_, known := m.tokens[r.Token]
	_, knownTenant := m.tenants[r.Tenant]
	switch {
	case known || knownTenant:
		return nil
	case full():
		return revocationsFull(limit, "retire the key of the tokens instead")
	case shareFull():
		return revocationsFull(MaxShareRevocations, "revoke all tokens of the tenant instead")
	}
	return nil
}

func (m *MemoryRevocations) countLocked() int { return len(m.tokens) + len(m.tenants) }

func (m *MemoryRevocations) addLocked(r Revocation) {
	r.At = r.At.UTC().Truncate(time.Millisecond)
	if !r.Until.IsZero() {
		r.Until = r.Until.UTC().Truncate(time.Millisecond)
	}
	if r.Tenant != "" {
		if earlier, ok := m.tenants[r.Tenant]; ok {
			r.Until = laterUntil(earlier.Until, r.Until)
			if r.At.Before(earlier.At) {
				r.At = earlier.At
			}
		}
		if m.tenants == nil {
			m.tenants = make(map[string]Revocation)
		}
		m.tenants[r.Tenant] = r
	} else {
		if earlier, ok := m.tokens[r.Token]; ok {
			r.Until = laterUntil(earlier.Until, r.Until)
			if earlier.At.Before(r.At) {
				r.At = earlier.At
			}
			r.Share = earlier.Share
		} else {
			m.countTokenLocked(&r, 1)
		}
		if m.tokens == nil {
			m.tokens = make(map[TokenID]Revocation)
		}
		m.tokens[r.Token] = r
	}
	m.sinceForget++
	m.generation.Add(1)
}

// countTokenLocked counts an entry of a token that is added, or removed if by is -1.
func (m *MemoryRevocations) countTokenLocked(r *Revocation, by int) {
	if r.Token.IsNarrowed() {
		m.narrowed += by
	}
	if r.Share == 0 {
		return
	}
	if m.shares == nil {
		m.shares = make(map[uint64]int)
	}
	if m.shares[r.Share] += by; m.shares[r.Share] == 0 {
		delete(m.shares, r.Share)
	}
}

// laterUntil is the later of two ends, of which zero is never.
func laterUntil(a, b time.Time) time.Time {
	if a.IsZero() || b.IsZero() {
		return time.Time{}
	}
	if a.Before(b) {
		return b
	}
	return a
}

// forgetLocked drops entries whose tokens are all good for nothing by themselves.
func (m *MemoryRevocations) forgetLocked(now time.Time) {
	m.sinceForget = 0
	maps.DeleteFunc(m.tokens, func(_ TokenID, r Revocation) bool {
		forget := r.Forgettable(now, m.since)
		if forget {
			m.countTokenLocked(&r, -1)
		}
		return forget
	})
	maps.DeleteFunc(m.tenants, func(_ string, r Revocation) bool { return r.Forgettable(now, m.since) })
}

// ForgetBefore drops what is of no use, now and from now on, because all keys that
// are accepted were made later: since is [KeyRing.AcceptsSince], and the zero time
// means that this is not known. It does not block.
func (m *MemoryRevocations) ForgetBefore(since time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.since = since
	m.forgetLocked(time.Now())
}

// Revoked implements [Revocations]. It does not block, and the error is always
// nil.
func (m *MemoryRevocations) Revoked(_ context.Context, token TokenID, tenant string) (since time.Time, revoked bool, err error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if r, ok := m.tokens[token]; ok {
		since, revoked = r.At, true
	}
	if r, ok := m.tenants[tenant]; ok && tenant != "" && !token.MintedAt().After(r.At) {
		if !revoked || r.At.Before(since) {
			since, revoked = r.At, true
		}
	}
	return since, revoked, nil
}

// RevokesNarrowed reports whether there is an entry of a narrowed token. A [Verifier] asks
// for the narrowed ids of a token only then.
func (m *MemoryRevocations) RevokesNarrowed() bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.narrowed > 0
}

// Generation implements [Revocations].
func (m *MemoryRevocations) Generation() uint64 { return m.generation.Load() }

// All yields the revocations as they were when it was called: those of tokens by
// id, then those of tenants by name.
func (m *MemoryRevocations) All() iter.Seq[Revocation] {
	m.mu.RLock()
	list := m.listLocked()
	m.mu.RUnlock()
	return slices.Values(list)
}

func (m *MemoryRevocations) listLocked() []Revocation {
	list := make([]Revocation, 0, m.countLocked())
	for _, r := range m.tokens {
		list = append(list, r)
	}
	for _, r := range m.tenants {
		list = append(list, r)
	}
	slices.SortFunc(list, func(a, b Revocation) int {
		return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), bytes.Compare(a.Token[:], b.Token[:]))
	})
	return list
}

// Len is how many revocations there are, for a metric beside MaxRevocations.
func (m *MemoryRevocations) Len() int {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.countLocked()
}
