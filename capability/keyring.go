package capability

import (
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/macaroon"
)

// maxKeys bounds a key ring.
const maxKeys = 64

// A KeyRing holds the keys of a service: one that mints, and earlier ones whose
// tokens are still accepted. To rotate, call [KeyRing.Rotate] with a new key. When
// the tokens of the old key have expired, or at once if it leaked, call
// [KeyRing.Retire] for it. When no delivery received with its tokens is in flight
// any more, call [KeyRing.Remove].
//
// It is safe for concurrent use. It prints only the ids of its keys.
type KeyRing struct {
	mu   sync.Mutex // held while keys is replaced
	keys atomic.Pointer[keys]
}

// keys is the immutable list of the keys of a ring. A change replaces it.
type keys struct {
	list       []Key // the first is the current one
	generation uint64
}

// NewKeyRing returns a ring that mints with current and also accepts tokens of
// previous. Zero keys and repeated ids are left out; a ring without current can
// neither mint nor verify.
func NewKeyRing(current Key, previous ...Key) *KeyRing {
	r := new(KeyRing)
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
func (r *KeyRing) Current() Key {
	if list := r.keys.Load().list; len(list) > 0 {
		return list[0]
	}
	return Key{}
}

// Keys returns all keys, the current one first.
func (r *KeyRing) Keys() []Key { return slices.Clone(r.keys.Load().list) }

// Generation changes whenever the keys do. It does not block.
func (r *KeyRing) Generation() uint64 { return r.keys.Load().generation }

// Rotate makes key the current one. The others stay, and their tokens remain
// valid. Codes: ErrInvalid (the zero Key), ErrConflict (the ring has a key with
// this id), ErrFull (64 keys; remove one first).
func (r *KeyRing) Rotate(key Key) error {
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
func (r *KeyRing) Retire(id KeyID, at time.Time) error {
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
func (r *KeyRing) Remove(id KeyID) error {
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
func (r *KeyRing) Adopt(other *KeyRing) {
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
func (r *KeyRing) AcceptsSince(now time.Time) time.Time {
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

func previousKey(list []Key, id KeyID) (int, error) {
	i := slices.IndexFunc(list, func(k Key) bool { return k.id == id })
	switch {
	case i < 0:
		return 0, keyError(driver.ErrNotFound, id, "is not in the ring")
	case i == 0:
		return 0, keyError(driver.ErrConflict, id, "is the current key; rotate in another one first")
	}
	return i, nil
}

func keyError(code driver.Code, id KeyID, detail string) error {
	return &driver.Error{Code: code, Op: "capability", Field: "key " + id.String(), Detail: detail}
}

// change replaces the keys by the result of edit, which gets a copy of them.
func (r *KeyRing) change(edit func(list []Key) ([]Key, error)) error {
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
// [Operations] or [AllOperations], one of [Queues], and one of [ExpiresAt].
//
// It does not block. Codes: ErrInvalid (the tenant, or an invalid or missing
// caveat), ErrTooLarge, ErrNotFound (the ring has no key).
func (r *KeyRing) Mint(tenant string, caveats ...Caveat) (Token, error) {
	key := r.Current()
	if key.IsZero() {
		return Token{}, keyError(driver.ErrNotFound, 0, "the ring is empty")
	}
	if tenant != "" && !macaroon.ValidTenant(tenant) {
		return Token{}, invalid("tenant", "want 1…64 letters, digits, dots, underscores and hyphens")
	}
	var s macaroon.Scope
	for _, caveat := range caveats {
		if err := caveat.Check(); err != nil {
			return Token{}, err
		}
		_ = s.Add(caveat.text) // cannot fail: Check has parsed it
	}
	if !s.Complete() {
		return Token{}, invalid("caveats", "want Operations or AllOperations, Queues, and ExpiresAt: every token names its operations, its queues and its expiry")
	}
	id := macaroon.Identifier{Key: uint32(key.id), Token: macaroon.NewTokenID(time.Now()), Tenant: tenant}
	body, chain := macaroon.Begin(macaroon.RootKey(key.secret.Bytes(), tenant), id)
	return extend(body, 0, &chain, caveats)
}

// String returns the ids of the keys, the current one first.
func (r *KeyRing) String() string {
	var b strings.Builder
	b.WriteString("[key ring")
	for _, key := range r.keys.Load().list {
		b.WriteByte(' ')
		b.WriteString(key.id.String())
	}
	b.WriteByte(']')
	return b.String()
}

// GoString returns what String returns.
func (r *KeyRing) GoString() string { return r.String() }

// Format prints what String returns, for every verb.
func (r *KeyRing) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, r.String()) }

// LogValue returns what String returns.
func (r *KeyRing) LogValue() slog.Value { return slog.StringValue(r.String()) }

// MarshalText returns what String returns: only WriteFile and Key.Reveal show keys.
func (r *KeyRing) MarshalText() ([]byte, error) { return []byte(r.String()), nil }
