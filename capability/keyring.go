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
)

// MaxKeys bounds a key ring.
const MaxKeys = 64

// A KeyRing holds the keys of a service: one that mints, and earlier ones whose
// tokens are still accepted. To rotate, [KeyRing.Rotate] in a new key; when the
// tokens of the old one have expired, or at once if it leaked, [KeyRing.Retire]
// it; and when nothing that was received with its tokens is out any more,
// [KeyRing.Remove] it.
//
// It is safe for concurrent use. It prints nothing but the ids of its keys.
type KeyRing struct {
	mu    sync.Mutex // held by who changes keys
	keys  atomic.Pointer[keys]
	dummy Key // what unknown keys are compared with, so that they take as long
}

// keys are those of a ring at one time. They are replaced and never changed, so
// whoever has verified something can tell whether the ring is still the same.
type keys struct{ list []Key } // the first is the current one

// NewKeyRing returns a ring that mints with current and accepts tokens of
// previous too. Keys without a secret are left out, and so are repeated ids; a
// ring without current can neither mint nor verify.
func NewKeyRing(current Key, previous ...Key) *KeyRing {
	r := &KeyRing{dummy: NewKey()}
	state := new(keys)
	for _, key := range slices.Insert(slices.Clone(previous), 0, current) {
		if !key.IsZero() && !state.has(key.id) {
			state.list = append(state.list, key)
		}
	}
	r.keys.Store(state)
	return r
}

func (k *keys) index(id KeyID) int {
	return slices.IndexFunc(k.list, func(key Key) bool { return key.id == id })
}

func (k *keys) has(id KeyID) bool { return k.index(id) >= 0 }

// Current returns the key that mints, the zero Key if there is none.
func (r *KeyRing) Current() Key {
	if list := r.keys.Load().list; len(list) > 0 {
		return list[0]
	}
	return Key{}
}

// Keys returns all keys, the current one first.
func (r *KeyRing) Keys() []Key { return slices.Clone(r.keys.Load().list) }

// Rotate makes key the current one. The others stay, and their tokens remain
// good. Codes: ErrInvalid (no key), ErrConflict (the id is taken), ErrFull
// (MaxKeys; remove one first).
func (r *KeyRing) Rotate(key Key) error {
	return r.change(func(list []Key) ([]Key, error) {
		switch {
		case key.IsZero():
			return nil, invalid("key", "there is none")
		case slices.ContainsFunc(list, func(k Key) bool { return k.id == key.id }):
			return nil, keyError(driver.ErrConflict, key.id, "is in the ring already")
		case len(list) >= MaxKeys:
			return nil, keyError(driver.ErrFull, key.id, fmt.Sprintf("the ring has %d keys, the most that are allowed; remove one first", MaxKeys))
		}
		return slices.Insert(list, 0, key), nil
	})
}

// Retire makes tokens of a key be refused from then on. Acks of deliveries that
// were taken before stay good until the tokens expire by themselves, which is
// why the key stays in the ring. The current key cannot be retired; rotate
// first. Codes: ErrNotFound, ErrConflict.
func (r *KeyRing) Retire(id KeyID, at time.Time) error {
	return r.change(func(list []Key) ([]Key, error) {
		i, err := previousKey(list, id)
		if err == nil {
			list[i].retiredAt = at.UTC()
		}
		return list, err
	})
}

// Remove forgets a key: its tokens are no longer genuine, and acks with them
// fail too. The current key cannot be removed. Codes: ErrNotFound, ErrConflict.
func (r *KeyRing) Remove(id KeyID) error {
	return r.change(func(list []Key) ([]Key, error) {
		i, err := previousKey(list, id)
		if err != nil {
			return nil, err
		}
		return slices.Delete(list, i, i+1), nil
	})
}

// Adopt makes the keys those of another ring, which another process has changed
// perhaps. A ring without keys is not adopted.
func (r *KeyRing) Adopt(other *KeyRing) {
	next := other.keys.Load()
	if len(next.list) == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.keys.Store(next)
}

// AcceptsSince is when the oldest key was made whose tokens are accepted, or were
// until a day ago, for the sake of clocks. A token that was minted earlier is not
// good any more. It is zero if that is not known of one of the keys.
func (r *KeyRing) AcceptsSince(now time.Time) time.Time {
	var since time.Time
	for _, key := range r.keys.Load().list {
		if !key.retiredAt.IsZero() && now.After(key.retiredAt.Add(forgetAfter)) {
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

// change replaces the keys by what edit makes of a copy.
func (r *KeyRing) change(edit func(list []Key) ([]Key, error)) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	list, err := edit(slices.Clone(r.keys.Load().list))
	if err != nil {
		return err
	}
	r.keys.Store(&keys{list})
	return nil
}

// Mint makes a token with the current key. A tenant binds it to that tenant for
// good; the empty one leaves it to the caveats. Every token must say for which
// operations, on which topics and until when it is good: give at least one
// caveat of [Operations] or [AllOperations], one of [Topics], and one of
// [ExpiresAt].
//
// It does not block. Codes: ErrInvalid (tenant, a caveat, or one that is
// missing), ErrTooLarge, ErrNotFound (the ring has no key).
func (r *KeyRing) Mint(tenant string, caveats ...Caveat) (Token, error) {
	key := r.Current()
	if key.IsZero() {
		return Token{}, keyError(driver.ErrNotFound, 0, "the ring is empty")
	}
	if tenant != "" {
		if err := checkTenant(tenant); err != nil {
			return Token{}, err
		}
	}
	var s scope
	for _, caveat := range caveats {
		if err := caveat.check(); err != nil {
			return Token{}, err
		}
		_ = s.add(caveat.text) // it was checked
	}
	if !s.complete() {
		return Token{}, invalid("caveats", "want Operations or AllOperations, Topics, and ExpiresAt: a token says for what, where and until when it is good")
	}
	return mint(key, identifier{key: key.id, token: newTokenID(time.Now()), tenant: tenant}, caveats)
}

// mint makes a token with a given identifier.
func mint(key Key, id identifier, caveats []Caveat) (Token, error) {
	text := id.append(nil)
	var c chain
	c.start(key.rootKey(id.tenant), text)
	body := append(appendSection([]byte{macaroonVersion}, text), fieldEnd)
	return extend(body, 0, &c, caveats)
}

// String lists the ids of the keys, the current one first.
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

// LogValue is what String returns.
func (r *KeyRing) LogValue() slog.Value { return slog.StringValue(r.String()) }

// MarshalText returns what String returns: keys leave only by WriteFile and
// Key.Reveal.
func (r *KeyRing) MarshalText() ([]byte, error) { return []byte(r.String()), nil }
