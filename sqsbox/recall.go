package sqsbox

import (
	"container/list"
	"crypto/sha256"
	"sync"
	"time"
)

// What is remembered at most.
const (
	maxMessagesRecalled = 10_000
	maxKeysRecalled     = 50_000
)

// recall is what this process knows of messages and SQS does not keep: why they were
// nacked, deliveries that nobody saw, and dedup keys that were used. It is lost with
// the process, and of very many things the oldest are forgotten.
type recall struct {
	mu       sync.Mutex // guards the fields below
	messages *memory[recallKey, remembered]
	keys     *memory[recallKey, usedKey]
}

// A recallKey is a message or a dedup key of a queue.
type recallKey struct{ queue, name string }

// remembered is what is known of a message.
type remembered struct {
	lastError string
	// unseen counts deliveries that SQS counts and nobody got: their receiver was
	// gone, or had no room for them.
	unseen int
}

// usedKey is what a dedup key was used for.
type usedKey struct {
	id   string
	body [sha256.Size]byte
	ends time.Time
}

func newRecall() *recall {
	return &recall{messages: newMemory[recallKey, remembered](maxMessagesRecalled), keys: newMemory[recallKey, usedKey](maxKeysRecalled)}
}

func (r *recall) message(queue, id string) remembered {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.messages.get(recallKey{queue, id})
}

func (r *recall) nacked(queue, id, cause string) {
	if cause == "" {
		return
	}
	r.change(queue, id, func(m *remembered) { m.lastError = cause })
}

// moved takes what is known of a message to another queue, where its deliveries are
// counted from zero.
func (r *recall) moved(from, to, id string) {
	known := r.message(from, id)
	r.gone(from, id)
	r.nacked(to, id, known.lastError)
}

func (r *recall) unseen(queue, id string) {
	r.change(queue, id, func(m *remembered) { m.unseen++ })
}

func (r *recall) change(queue, id string, change func(*remembered)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	known := r.messages.get(recallKey{queue, id})
	change(&known)
	r.messages.put(recallKey{queue, id}, known)
}

func (r *recall) gone(queue, id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.messages.remove(recallKey{queue, id})
}

// conflicts reports whether a key was used for another body, as far as is known, and
// for which message.
func (r *recall) conflicts(queue, key string, body []byte) (id string, conflict bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	used := r.keys.get(recallKey{queue, key})
	return used.id, used.id != "" && time.Now().Before(used.ends) && used.body != sha256.Sum256(body)
}

// sent notes for which message SQS has used a key since start, and reports whether
// that is known to be an earlier one, and whether that one has another body.
func (r *recall) sent(queue, key string, body [sha256.Size]byte, id string, start time.Time) (duplicate, conflict bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if used := r.keys.get(recallKey{queue, key}); used.id == id {
		return true, used.body != body
	}
	r.keys.put(recallKey{queue, key}, usedKey{id: id, body: body, ends: start.Add(dedupWindow)})
	return false, false
}

// forget drops all that is known of a queue.
func (r *recall) forget(queue string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	of := func(key recallKey) bool { return key.queue == queue }
	r.messages.removeAll(of)
	r.keys.removeAll(of)
}

// A memory is a map that forgets what was put into it first.
type memory[K comparable, V any] struct {
	most    int
	entries map[K]*list.Element // of item[K, V]
	age     *list.List          // oldest first
}

type item[K comparable, V any] struct {
	key   K
	value V
}

func newMemory[K comparable, V any](most int) *memory[K, V] {
	return &memory[K, V]{most: most, entries: make(map[K]*list.Element), age: list.New()}
}

// get returns the zero value for what is not known.
func (m *memory[K, V]) get(key K) (value V) {
	if entry := m.entries[key]; entry != nil {
		return entry.Value.(item[K, V]).value
	}
	return value
}

func (m *memory[K, V]) put(key K, value V) {
	m.remove(key)
	if m.age.Len() >= m.most {
		m.remove(m.age.Front().Value.(item[K, V]).key)
	}
	m.entries[key] = m.age.PushBack(item[K, V]{key, value})
}

func (m *memory[K, V]) remove(key K) {
	if entry := m.entries[key]; entry != nil {
		m.age.Remove(entry)
		delete(m.entries, key)
	}
}

func (m *memory[K, V]) removeAll(which func(K) bool) {
	for key := range m.entries {
		if which(key) {
			m.remove(key)
		}
	}
}
