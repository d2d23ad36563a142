package console

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/share"
)

const (
	// maxSessions bounds the sessions of all tenants; a session has a few kilobytes.
	maxSessions = 1024
	// sessionTTL is how long a session lasts at most, a working day.
	sessionTTL = 8 * time.Hour
	// codeTTL is how long a one-time code is good.
	codeTTL = time.Minute
	// retrySessions is the RetryAfter when a share of sessions is used up.
	retrySessions = time.Minute

	cookieName = "mailbox_console"
	// codePrefix begins a one-time code, so that people and forms tell it from a token.
	codePrefix = "code-"
)

// A session is a login. Its token stays in this process.
type session struct {
	key      [sha256.Size]byte // of the cookie
	token    capability.Token
	csrf     string
	readOnly bool
	expires  time.Time
	ended    atomic.Bool

	mu    sync.Mutex // guards the fields below
	flash *notice
	forms []string // the latest that were sent
}

// maxForms is how many forms a session remembers, to recognise one that is sent twice, and
// maxFormID bounds the id of each.
const maxForms, maxFormID = 32, 64

// A notice is shown once, on the next page.
type notice struct {
	text   string
	good   bool
	secret string // which the person copies; empty if there is none
}

func (s *session) owner() share.Path {
	return share.Path{{Name: s.token.Tenant()}, {ID: s.token.ID()}}
}

func (s *session) tell(n notice) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.flash = &n
}

func (s *session) told() *notice {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.flash
	s.flash = nil
	return n
}

// begins reports whether a form is sent for the first time. Of one that is sent again it
// tells the person, unless the result of the first is still to be told.
func (s *session) begins(form string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.Contains(s.forms, form) {
		if s.flash == nil {
			s.flash = &notice{text: "The form was sent twice. The change is made once.", good: true}
		}
		return false
	}
	s.forms = append(s.forms[max(0, len(s.forms)-maxForms+1):], form)
	return true
}

// sessions are those of a handler, and the one-time codes for new ones. Tenants share the
// bound (OPS-4).
type sessions struct {
	pool *share.Pool

	mu    sync.Mutex // guards the fields below
	byKey map[[sha256.Size]byte]*session
	codes map[[sha256.Size]byte]*session // not begun
}

func (s *sessions) init() {
	s.pool = share.New("console sessions", "the console", maxSessions, retrySessions)
	s.byKey = make(map[[sha256.Size]byte]*session)
	s.codes = make(map[[sha256.Size]byte]*session)
}

// offer keeps a session for a token until it is begun with the returned code. Codes: ErrFull.
func (s *sessions) offer(token capability.Token, readOnly bool) (code string, err error) {
	now := time.Now()
	offered := &session{token: token, readOnly: readOnly, expires: now.Add(codeTTL)}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweepLocked(now)
	if err := s.pool.Take(offered.owner(), 1); err != nil {
		return "", err
	}
	code = codePrefix + rand.Text()
	s.codes[sha256.Sum256([]byte(code))] = offered
	return code, nil
}

// redeem returns the token behind a code, once.
func (s *sessions) redeem(code string) (token capability.Token, readOnly, ok bool) {
	key, now := sha256.Sum256([]byte(code)), time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	offered := s.codes[key]
	if offered == nil {
		return token, false, false
	}
	delete(s.codes, key)
	s.pool.Give(offered.owner(), 1)
	return offered.token, offered.readOnly, now.Before(offered.expires)
}

// begin makes a session with a new key, and returns the value of its cookie. Codes: ErrFull.
func (s *sessions) begin(token capability.Token, readOnly bool) (*session, string, error) {
	now := time.Now()
	value := rand.Text()
	begun := &session{
		key: sha256.Sum256([]byte(value)), token: token, csrf: rand.Text(), readOnly: readOnly, expires: now.Add(sessionTTL),
	}
	if at := token.Inspect().ExpiresAt; at.Before(begun.expires) {
		begun.expires = at
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweepLocked(now)
	if err := s.pool.Take(begun.owner(), 1); err != nil {
		return nil, "", err
	}
	s.byKey[begun.key] = begun
	return begun, value, nil
}

// find returns the session of a request; nil if it has none.
func (s *sessions) find(r *http.Request) *session {
	cookie, err := r.Cookie(cookieName)
	if err != nil {
		return nil
	}
	key := sha256.Sum256([]byte(cookie.Value))
	s.mu.Lock()
	found := s.byKey[key]
	s.mu.Unlock()
	if found != nil && !time.Now().Before(found.expires) {
		s.end(found)
		return nil
	}
	return found
}

// end removes a session.
func (s *sessions) end(ended *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endLocked(ended)
}

func (s *sessions) endLocked(ended *session) {
	if s.byKey[ended.key] == ended {
		delete(s.byKey, ended.key)
		s.pool.Give(ended.owner(), 1)
	}
	ended.ended.Store(true)
}

// sweepLocked removes what has expired.
func (s *sessions) sweepLocked(now time.Time) {
	for _, known := range s.byKey {
		if !now.Before(known.expires) {
			s.endLocked(known)
		}
	}
	for key, offered := range s.codes {
		if !now.Before(offered.expires) {
			delete(s.codes, key)
			s.pool.Give(offered.owner(), 1)
		}
	}
}

// checkCSRF compares the CSRF token of a form with that of the session.
func (v *view) checkCSRF() error {
	if subtle.ConstantTimeCompare([]byte(v.request.PostForm.Get("csrf")), []byte(v.session.csrf)) != 1 {
		return &driver.Error{Code: driver.ErrForbidden, Op: "change", Detail: "the form is of another session; go back, load the page again and repeat"}
	}
	return nil
}
