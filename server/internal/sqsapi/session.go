package sqsapi

import (
	"sync"

	"github.com/mailboxmq/mailbox/capability"
)

// maxSessions bounds how many clients are remembered.
const maxSessions = 4096

// sessionKey is what a client shows of its credentials.
type sessionKey struct{ accessKeyID, token string }

// A session is a client whose signature was verified: the capability that it has,
// and the secret that its next signatures are verified with. Whether the capability
// is still good is asked with each request.
type session struct {
	token  capability.Token
	secret capability.Secret
}

// A sessionTable remembers sessions, which saves computing the secret of a
// capability for each request.
type sessionTable struct {
	mu    sync.RWMutex // guards known
	known map[sessionKey]session
}

func (t *sessionTable) get(key sessionKey) (session, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	found, ok := t.known[key]
	return found, ok
}

func (t *sessionTable) put(key sessionKey, s session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.known == nil || len(t.known) >= maxSessions {
		t.known = make(map[sessionKey]session)
	}
	t.known[key] = s
}
