// Package revocation keeps the revocations of tokens, in memory or in a file, for the daemon and
// its command line.
//
// [File] keeps revocations in a file of lines of 128 bytes:
//
//	checksum text spaces newline
//
// The checksum is CRC-32C of the rest of the line, in 8 hex digits. The text of
// the first line is "mailbox revocations 1"; that of the others is
//
//	token id at until [share]
//	tenant name at until
//
// with times in Unix milliseconds. An until of 0 means that the revocation never
// expires; the share, in 16 hex digits, is present if the revocation counts
// against one. Lines are appended and synced. An incomplete line at the end, or
// zeros instead of it, is what a crash leaves; any other damage makes the file
// unreadable, because a revoked token must not become valid by accident. The file
// is rewritten, and renamed into place, when most of it is obsolete: because the
// revoked tokens have expired, or because all keys of that time have been retired
// ([keyring.Ring.AcceptsSince]), each at least a day ago.
package revocation

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

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
)

// A Revocation revokes one token, or the tokens of a tenant. Exactly one of Token
// and Tenant is set.
type Revocation struct {
	// Token is revoked together with all tokens narrowed from it and all tokens
	// minted with it. It is the id of a minted token, or that of a narrowed one
	// ([capability.Token.NarrowedID]).
	Token capability.TokenID
	// Tenant's tokens that were minted up to At, by the clock of their minter, are
	// revoked. This does not include a token of another tenant that was narrowed
	// to this one.
	Tenant string
	// At is when it was revoked: acks of deliveries received before are honoured.
	At time.Time
	// Until is when all tokens that it concerns have expired; zero means never.
	// The revocation is dropped a day later, because clocks differ.
	Until time.Time
	// Share is the share of Max that the revocation of a token counts
	// against; see ShareOf.
	Share uint64
}

// forgetAfter is added to Revocation.Until: a clock that is ahead by less must not
// make a revoked token valid.
const forgetAfter = 24 * time.Hour

func (r *Revocation) check() error {
	switch {
	case r.Token.IsZero() == (r.Tenant == ""):
		return invalid("revocation", "want either a token or a tenant")
	case r.Tenant != "" && capability.Tenant(r.Tenant).Check() != nil:
		return invalid("tenant", "want 1…64 letters, digits, dots, underscores and hyphens")
	case !validMillis(r.At):
		return invalid("At", "want a time of the years 1970 to 9999")
	case !r.Until.IsZero() && (!validMillis(r.Until) || r.Until.Before(r.At)):
		return invalid("Until", "want a time after At, or the zero time")
	case r.Share != 0 && r.Tenant != "":
		return invalid("Share", "want 0 for the revocation of a tenant")
	}
	return nil
}

func invalid(field, detail string) error {
	return &driver.Error{Code: driver.ErrInvalid, Op: "capability", Field: field, Detail: detail}
}

func validMillis(t time.Time) bool {
	year := t.UTC().Year()
	return year >= 1970 && year <= 9999
}

// Forgettable reports whether the revocation is obsolete, with a margin of a day for
// clocks: all tokens that it concerns have expired, or were minted with keys that
// are no longer accepted. acceptsSince is [keyring.Ring.AcceptsSince]; zero means that it
// is not known. It is compared with At, and not with the time of the token: tokens
// minted with the revoked one were minted before At, perhaps with a later key.
func (r Revocation) Forgettable(now, acceptsSince time.Time) bool {
	expired := !r.Until.IsZero() && now.After(r.Until.Add(forgetAfter))
	return expired || acceptsSince.After(r.At.Add(forgetAfter))
}

// Max bounds the number of revocations.
const Max = 1 << 18

// MaxPerShare bounds how many of them can have the same Share, so that one
// tenant cannot use up the room of the others. A tenant that reaches it can revoke
// all its tokens with one revocation.
const MaxPerShare = 1 << 12

// ShareOf returns the share of a tenant. That of the empty tenant, which the
// operator of the service uses, is 0 and has no bound of its own.
func ShareOf(tenant string) uint64 {
	if tenant == "" {
		return 0
	}
	sum := sha256.Sum256([]byte(tenant))
	return binary.BigEndian.Uint64(sum[:])
}

// Memory keeps revocations for the life of the process, for services
// without storage. The zero value is empty and ready to use. It is safe for
// concurrent use.
type Memory struct {
	generation atomic.Uint64

	mu          sync.RWMutex // guards the fields below
	tokens      map[capability.TokenID]Revocation
	tenants     map[string]Revocation
	shares      map[uint64]int // number of revocations of tokens by share, except share 0
	narrowed    int            // number of revocations of narrowed tokens
	sinceForget int            // revocations added since forgetLocked ran
	since       time.Time      // see ForgetBefore
	limit       int            // Max if 0; tests set less
}

// Revoke adds a revocation. If the token was revoked before, only Until changes; if
// the tenant was, the revocation extends to tokens minted since. The later Until
// counts. It does not block. Codes: ErrInvalid, ErrFull (Max,
// MaxPerShare).
func (m *Memory) Revoke(_ context.Context, r Revocation) error {
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
		Detail: fmt.Sprintf("revocation limit reached (%d); %s", limit, advice),
	}
}

// roomLocked returns ErrFull if r cannot be added. If there is no room, and after
// enough additions, it drops obsolete revocations; seldom enough that the scan costs
// next to nothing per addition.
func (m *Memory) roomLocked(r *Revocation) error {
	const atLeast = 64
	limit := cmp.Or(m.limit, Max)
	full := func() bool { return m.countLocked() >= limit }
	shareFull := func() bool { return r.Share != 0 && m.shares[r.Share] >= MaxPerShare }
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
		return revocationsFull(MaxPerShare, "revoke all tokens of the tenant instead")
	}
	return nil
}

func (m *Memory) countLocked() int { return len(m.tokens) + len(m.tenants) }

func (m *Memory) addLocked(r Revocation) {
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
			m.tokens = make(map[capability.TokenID]Revocation)
		}
		m.tokens[r.Token] = r
	}
	m.sinceForget++
	m.generation.Add(1)
}

// countTokenLocked counts the revocation of a token as added (by is 1) or dropped
// (by is -1).
func (m *Memory) countTokenLocked(r *Revocation, by int) {
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

// laterUntil returns the later of two times, of which zero means never.
func laterUntil(a, b time.Time) time.Time {
	if a.IsZero() || b.IsZero() {
		return time.Time{}
	}
	if a.Before(b) {
		return b
	}
	return a
}

// forgetLocked drops obsolete revocations.
func (m *Memory) forgetLocked(now time.Time) {
	m.sinceForget = 0
	maps.DeleteFunc(m.tokens, func(_ capability.TokenID, r Revocation) bool {
		forget := r.Forgettable(now, m.since)
		if forget {
			m.countTokenLocked(&r, -1)
		}
		return forget
	})
	maps.DeleteFunc(m.tenants, func(_ string, r Revocation) bool { return r.Forgettable(now, m.since) })
}

// ForgetBefore drops, now and from now on, revocations that are obsolete because all
// accepted keys were made later: since is [keyring.Ring.AcceptsSince], and the zero time
// means that this is not known. It does not block.
func (m *Memory) ForgetBefore(since time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.since = since
	m.forgetLocked(time.Now())
}

// Revoked implements [verify.Revocations]. It does not block, and the error is always
// nil.
func (m *Memory) Revoked(_ context.Context, token capability.TokenID, tenant string) (since time.Time, revoked bool, err error) {
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

// RevokesNarrowed reports whether a narrowed token is revoked. A [verify.Verifier] computes
// the narrowed ids of a token only then.
func (m *Memory) RevokesNarrowed() bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.narrowed > 0
}

// Generation implements [verify.Revocations].
func (m *Memory) Generation() uint64 { return m.generation.Load() }

// All yields the revocations as they were when it was called: those of tokens by
// id, then those of tenants by name.
func (m *Memory) All() iter.Seq[Revocation] {
	m.mu.RLock()
	list := m.listLocked()
	m.mu.RUnlock()
	return slices.Values(list)
}

func (m *Memory) listLocked() []Revocation {
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

// Len returns the number of revocations, for a metric beside Max.
func (m *Memory) Len() int {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.countLocked()
}
