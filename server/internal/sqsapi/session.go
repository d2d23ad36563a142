package sqsapi

import (
	"strings"
	"sync"
	"sync/atomic"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/server/internal/broker"
	"github.com/mailboxmq/mailbox/server/internal/sqsapi/sigv4"
)

// maxSessions bounds how many clients are remembered.
const maxSessions = 4096

// sessionKey is what a client shows of its credentials.
type sessionKey struct{ accessKeyID, token string }

// A session is a client whose credentials are known: the capability that it has, and
// the secret that its signatures are verified with. Whether the capability is still
// good is asked with each request.
type session struct {
	token  capability.Token
	secret *sigv4.Secret
	last   atomic.Pointer[sessionCaller]
}

// A sessionCaller is who a client was the last time: making one takes the token to
// pieces. It says who somebody is, and nothing of what they may do.
type sessionCaller struct {
	broker.Caller
	origin  broker.Origin // without the correlation
	account string
}

// caller returns who a client is that asks from somewhere.
func (s *session) caller(b *broker.Broker, origin broker.Origin) (caller broker.Caller, account string) {
	from := origin
	from.CorrelationID = ""
	known := s.last.Load()
	if known == nil || known.origin != from {
		known = &sessionCaller{Caller: ruled(b.Caller(s.token, from)), origin: from}
		known.account = accountOf(known.Tenant())
		s.last.Store(known)
	}
	return known.CorrelatedBy(origin.CorrelationID), known.account
}

// A sessionTable remembers sessions, which saves computing the secret of a
// capability for each request.
type sessionTable struct {
	mu    sync.RWMutex // guards known
	known map[sessionKey]*session
}

// get returns nil for a client that is not known.
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
	// They are parts of a request, which would be kept with them.
	t.known[sessionKey{strings.Clone(key.accessKeyID), strings.Clone(key.token)}] = s
}
