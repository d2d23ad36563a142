package faulty

import (
	"sync"

	"github.com/mailboxmq/mailbox/driver"
)

// A table is a map that is safe for concurrent use. The zero table is empty.
type table[K comparable, V any] struct {
	mu      sync.Mutex // guards entries
	entries map[K]V
}

// Tables of message ids, names and keys, and of receipts.
type (
	marks        = table[string, bool]
	counts       = table[string, int]
	texts        = table[string, string]
	receiptMarks = table[driver.Receipt, bool]
)

func (t *table[K, V]) get(key K) (V, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	value, ok := t.entries[key]
	return value, ok
}

func (t *table[K, V]) put(key K, value V) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.putLocked(key, value)
}

func (t *table[K, V]) putLocked(key K, value V) {
	if t.entries == nil {
		t.entries = make(map[K]V)
	}
	t.entries[key] = value
}

func (t *table[K, V]) drop(key K) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.entries, key)
}

// keys returns the keys in any order.
func (t *table[K, V]) keys() []K {
	t.mu.Lock()
	defer t.mu.Unlock()
	keys := make([]K, 0, len(t.entries))
	for key := range t.entries {
		keys = append(keys, key)
	}
	return keys
}

// add adds to a number in a table, and returns the sum.
func add[K comparable](t *table[K, int], key K, n int) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.putLocked(key, t.entries[key]+n)
	return t.entries[key]
}

// at returns the value of a key, or the zero value.
func (t *table[K, V]) at(key K) V {
	value, _ := t.get(key)
	return value
}

// load sets value to the value of a key, if there is one.
func (t *table[K, V]) load(key K, value *V) {
	if found, ok := t.get(key); ok {
		*value = found
	}
}
