package sqsbox

import (
	"container/list"
	"crypto/sha256"
	"sync"
	"time"
)

// Bounds of localState.
const (
	maxMessageStates = 10_000
	maxUsedKeys      = 50_000
)

// localState is what this process knows of messages and SQS does not store: causes of
// nacks, deliveries that no receiver got, and the bodies of dedup keys. It is lost with
// the process, and when it is full the oldest entries are dropped.
type localState struct {
	mu       sync.Mutex // guards the fields below
	messages *boundedMap[stateKey, messageState]
	keys     *boundedMap[stateKey, usedKey]
}

// A stateKey names a message or a dedup key of a queue.
type stateKey struct{ queue, name string }

// messageState is what is known of a message.
type messageState struct {
	lastError string
	// unseen counts deliveries that SQS counts but no receiver got: the receive was
	// cancelled, or had no room for them.
	unseen int
}

// usedKey is the message that a dedup key was used for.
type usedKey struct {
	id   string
	body [sha256.Size]byte
	ends time.Time
}

func newLocalState() *localState {
	return &localState{messages: newBoundedMap[stateKey, messageState](maxMessageStates), keys: newBoundedMap[stateKey, usedKey](maxUsedKeys)}
}

func (r *localState) message(queue, id string) messageState {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.messages.get(stateKey{queue, id})
}

func (r *localState) nacked(queue, id, cause string) {
	if cause == "" {
		return
	}
	r.change(queue, id, func(m *messageState) { m.lastError = cause })
}

// moved transfers the state of a message to another queue, where its deliveries count
// from zero.
func (r *localState) moved(from, to, id string) {
	known := r.message(from, id)
	r.gone(from, id)
	r.nacked(to, id, known.lastError)
}

func (r *localState) unseen(queue, id string) {
	r.change(queue, id, func(m *messageState) { m.unseen++ })
}

func (r *localState) change(queue, id string, change func(*messageState)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	known := r.messages.get(stateKey{queue, id})
	change(&known)
	r.messages.put(stateKey{queue, id}, known)
}

func (r *localState) gone(queue, id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.messages.remove(stateKey{queue, id})
}

// conflicts reports whether a key is known to be used for another body, and for which
// message.
func (r *localState) conflicts(queue, key string, body []byte) (id string, conflict bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	used := r.keys.get(stateKey{queue, key})
	return used.id, used.id != "" && time.Now().Before(used.ends) && used.body != sha256.Sum256(body)
}

// sent records that SQS used a key, at start or later, for the message id. It reports
// whether that is known to be an earlier message, and whether that has another body.
func (r *localState) sent(queue, key string, body [sha256.Size]byte, id string, start time.Time) (duplicate, conflict bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if used := r.keys.get(stateKey{queue, key}); used.id == id {
		return true, used.body != body
	}
	r.keys.put(stateKey{queue, key}, usedKey{id: id, body: body, ends: start.Add(dedupWindow)})
	return false, false
}

// forget drops everything that is known of a queue.
func (r *localState) forget(queue string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	of := func(key stateKey) bool { return key.queue == queue }
	r.messages.removeAll(of)
	r.keys.removeAll(of)
}

// A boundedMap drops the oldest entry when it is full.
type boundedMap[K comparable, V any] struct {
	most    int
	entries map[K]*list.Element // of item[K, V]
	age     *list.List          // oldest first
}

type item[K comparable, V any] struct {
	key   K
	value V
}

func newBoundedMap[K comparable, V any](most int) *boundedMap[K, V] {
	return &boundedMap[K, V]{most: most, entries: make(map[K]*list.Element), age: list.New()}
}

// get returns the zero value for an unknown key.
func (m *boundedMap[K, V]) get(key K) (value V) {
	if entry := m.entries[key]; entry != nil {
		return entry.Value.(item[K, V]).value
	}
	return value
}

func (m *boundedMap[K, V]) put(key K, value V) {
	m.remove(key)
	if m.age.Len() >= m.most {
		m.remove(m.age.Front().Value.(item[K, V]).key)
	}
	m.entries[key] = m.age.PushBack(item[K, V]{key, value})
}

func (m *boundedMap[K, V]) remove(key K) {
	if entry := m.entries[key]; entry != nil {
		m.age.Remove(entry)
		delete(m.entries, key)
	}
}

func (m *boundedMap[K, V]) removeAll(which func(K) bool) {
	for key := range m.entries {
		if which(key) {
			m.remove(key)
		}
	}
}
