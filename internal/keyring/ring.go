package keyring

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/macaroon"
)

// maxKeys bounds a key ring.
const maxKeys = 64

// A Ring holds the keys of a service: one that mints, and earlier ones whose
// tokens are still accepted. To rotate, call [Ring.Rotate] with a new key. When
// the tokens of the old key have expired, or at once if it leaked, call
// [Ring.Retire] for it. When no delivery received with its tokens is in flight
// any more, call [Ring.Remove].
//
// It is safe for concurrent use. It prints only the ids of its keys.
type Ring struct {
	mu   sync.Mutex // held while keys is replaced
	keys atomic.Pointer[keys]
}

// keys is the immutable list of the keys of a ring. A change replaces it.
type keys struct {
	list       []Key // the first is the current one
	generation uint64
}

// New returns a ring that mints with current and also accepts tokens of
// previous. Zero keys and repeated ids are left out; a ring without current can
// neither mint nor verify.
func New(current Key, previous ...Key) *Ring {
	r := new(Ring)
	state := new(keys)
	for _, key := range slices.Insert(slices.Clone(previous), 0, current) {
		if !key.IsZero() && !slices.ContainsFunc(state.list, func(k Key) bool { return k.id == key.id }) {
			state.list = append(state.list, key)
		}
	}
	r.keys.Store(state)
	return r
}

// Current returns the key that mints, the zero Key if there is none.
func (r *Ring) Current() Key {
	if list := r.keys.Load().list; len(list) > 0 {
		return list[0]
	}
	return Key{}
}

// Keys returns all keys, the current one first.
func (r *Ring) Keys() []Key { return slices.Clone(r.keys.Load().list) }

// Generation changes whenever the keys do. It does not block.
func (r *Ring) Generation() uint64 { return r.keys.Load().generation }

// Rotate makes key the current one. The others stay, and their tokens remain
// valid. Codes: ErrInvalid (the zero Key), ErrConflict (the ring has a key with
// this id), ErrFull (64 keys; remove one first).
func (r *Ring) Rotate(key Key) error {
	return r.change(func(list []Key) ([]Key, error) {
		switch {
		case key.IsZero():
			return nil, invalid("key", "is empty")
		case slices.ContainsFunc(list, func(k Key) bool { return k.id == key.id }):
			return nil, keyError(driver.ErrConflict, key.id, "is in the ring already")
		case len(list) >= maxKeys:
			return nil, keyError(driver.ErrFull, key.id, fmt.Sprintf("the ring has %d keys, which is the limit; remove one first", maxKeys))
		}
		return slices.Insert(list, 0, key), nil
	})
}

// Retire refuses the tokens of a key from the given time on. Acks of deliveries
// received before that are accepted until the tokens expire, which is why the key
// stays in the ring. The current key cannot be retired; rotate first. Codes:
// ErrNotFound, ErrConflict.
func (r *Ring) Retire(id capability.KeyID, at time.Time) error {
	return r.change(func(list []Key) ([]Key, error) {
		i, err := previousKey(list, id)
		if err == nil {
			list[i].retiredAt = at.UTC()
		}
		return list, err
	})
}

// Remove removes a key: its tokens are no longer genuine, and acks with them fail
// too. The current key cannot be removed. Codes: ErrNotFound, ErrConflict.
func (r *Ring) Remove(id capability.KeyID) error {
	return r.change(func(list []Key) ([]Key, error) {
		i, err := previousKey(list, id)
		if err != nil {
			return nil, err
		}
		return slices.Delete(list, i, i+1), nil
	})
}

// Adopt replaces the keys by those of another ring, for example one read from a
// file that another process has changed. It ignores a ring without keys.
func (r *Ring) Adopt(other *Ring) {
	next := other.keys.Load()
	if len(next.list) == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.keys.Store(&keys{next.list, r.Generation() + 1})
}

// acceptedAfter is how long a key counts as accepted after it was retired: a clock that is
// behind by less must not make a token of the key valid.
const acceptedAfter = 24 * time.Hour

// AcceptsSince returns when the oldest accepted key was made. A key counts as
// accepted for a day after it was retired, because clocks differ. Tokens minted
// before the returned time are no longer valid. It is zero if the time of one of
// the keys is not known.
func (r *Ring) AcceptsSince(now time.Time) time.Time {
	var since time.Time
	for _, key := range r.keys.Load().list {
		if !key.retiredAt.IsZero() && now.After(key.retiredAt.Add(acceptedAfter)) {
			continue
		}
		if key.madeAt.IsZero() {
			return time.Time{}
		}
		if since.IsZero() || key.madeAt.Before(since) {
			since = key.madeAt
		}
	}
	return since
}

func previousKey(list []Key, id capability.KeyID) (int, error) {
	i := slices.IndexFunc(list, func(k Key) bool { return k.id == id })
	switch {
	case i < 0:
		return 0, keyError(driver.ErrNotFound, id, "is not in the ring")
	case i == 0:
		return 0, keyError(driver.ErrConflict, id, "is the current key; rotate in another one first")
	}
	return i, nil
}

func keyError(code driver.Code, id capability.KeyID, detail string) error {
	return &driver.Error{Code: code, Op: "capability", Field: "key " + id.String(), Detail: detail}
}

// change replaces the keys by the result of edit, which gets a copy of them.
func (r *Ring) change(edit func(list []Key) ([]Key, error)) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	list, err := edit(slices.Clone(r.keys.Load().list))
	if err != nil {
		return err
	}
	r.keys.Store(&keys{list, r.Generation() + 1})
	return nil
}

// Mint makes a token with the current key. A tenant binds the token to that tenant
// for its whole life; with an empty one only the caveats do. Every token must name
// its operations, its queues and its expiry: pass at least one caveat of
// capability.Operations or AllOperations, one of Queues, and one of ExpiresAt.
//
// It does not block. Codes: ErrInvalid (the tenant, or an invalid or missing
// caveat), ErrTooLarge, ErrNotFound (the ring has no key).
func (r *Ring) Mint(tenant string, caveats ...capability.Caveat) (capability.Token, error) {
	key := r.Current()
	if key.IsZero() {
		return capability.Token{}, keyError(driver.ErrNotFound, 0, "the ring is empty")
	}
	if tenant != "" && !macaroon.ValidTenant(tenant) {
		return capability.Token{}, invalid("tenant", "want 1…64 letters, digits, dots, underscores and hyphens")
	}
	var s macaroon.Scope
	for _, caveat := range caveats {
		if err := caveat.Check(); err != nil {
			return capability.Token{}, err
		}
		_ = s.Add(caveat.String()) // cannot fail: Check has parsed it
	}
	if !s.Complete() {
		return capability.Token{}, invalid("caveats", "want Operations or AllOperations, Queues, and ExpiresAt: every token names its operations, its queues and its expiry")
	}
	id := macaroon.Identifier{Key: uint32(key.id), Token: macaroon.NewTokenID(time.Now()), Tenant: tenant}
	body, chain := macaroon.Begin(macaroon.RootKey(key.secret.Bytes(), tenant), id)
	token, err := capability.ParseBinary(macaroon.Extend(body, &chain, nil))
	if err != nil {
		return capability.Token{}, err
	}
	return token.Narrow(caveats...)
}

// String returns the ids of the keys, the current one first.
func (r *Ring) String() string {
	var b strings.Builder
	b.WriteString("[key ring")
	for _, key := range r.keys.Load().list {
		b.WriteByte(' ')
		b.WriteString(key.id.String())
	}
	b.WriteByte(']')
	return b.String()
}

// Format prints what String returns, for every verb.
func (r *Ring) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, r.String()) }

// MarshalText returns what String returns: only WriteFile and Key.Reveal show keys.
func (r *Ring) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

func invalid(field, detail string) error {
	return &driver.Error{Code: driver.ErrInvalid, Op: "capability", Field: field, Detail: detail}
}
