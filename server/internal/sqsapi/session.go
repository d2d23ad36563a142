package sqsapi

import (
	"strings"
	"sync"
	"sync/atomic"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/server/internal/broker"
	"github.com/mailboxmq/mailbox/server/internal/sqsapi/sigv4"
)

// maxSessions bounds how many sessions are cached.
const maxSessions = 4096

// sessionKey is the part of the credentials that a client sends.
type sessionKey struct{ accessKeyID, token string }

// A session is a client with known credentials: its token, and the secret that verifies
// its signatures. Each request checks that the token is still valid.
type session struct {
	token  capability.Token
	secret *sigv4.Secret
	last   atomic.Pointer[sessionCaller]
}

// A sessionCaller caches the caller of a session, because making one parses the token.
// It says who the client is, and nothing about what it may do.
type sessionCaller struct {
	broker.Caller
	origin  broker.Origin // without the correlation
	account string
}

// caller returns the caller of a session for a request from origin.
func (s *session) caller(b *broker.Broker, origin broker.Origin) (caller broker.Caller, account string) {
	from := origin
	from.CorrelationID = ""
	known := s.last.Load()
	if known == nil || known.origin != from {
		known = &sessionCaller{Caller: withSQSRules(b.Caller(s.token, from)), origin: from}
		known.account = accountOf(known.Tenant())
		s.last.Store(known)
	}
	return known.CorrelatedBy(origin.CorrelationID), known.account
}

// A sessionTable caches sessions, which saves deriving the secret of a token for each
// request.
type sessionTable struct {
	mu    sync.RWMutex // guards known
	known map[sessionKey]*session
}

// get returns nil for an unknown client.
func (t *sessionTable) get(key sessionKey) *session {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.known[key]
}

func (t *sessionTable) put(key sessionKey, s *session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.known == nil || len(t.known) >= maxSessions {
		t.known = make(map[sessionKey]*session)
	}
	// Cloned, because the strings are parts of the request and would keep all of it.
	t.known[sessionKey{strings.Clone(key.accessKeyID), strings.Clone(key.token)}] = s
}
