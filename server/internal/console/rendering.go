package console

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/netip"
	"net/url"
	"time"

	"github.com/mailboxmq/mailbox/server/internal/broker"
	h "github.com/mailboxmq/mailbox/server/internal/console/markup"
)

// A renderingKey says what a live page shows: two streams with the same key show the same.
type renderingKey struct {
	page     string // the screen and its parameters
	tenant   string
	rights   string // what the token allows
	readOnly bool
	operator bool
	// exact and client are set for a token whose rights depend on more than queues and operations, such as
	// the address of its client.
	exact   broker.Fingerprint
	client  netip.Addr
	peer    string
	session *session // set for a page about the session
}

// renderingKey returns the key of a page as this session sees it.
func (v *view) renderingKey(shown *screen, values url.Values) renderingKey {
	token := v.session.token
	caller := v.handler.broker.Caller(token, v.origin())
	described := token.Inspect()
	key := renderingKey{
		page: shown.path + "?" + values.Encode(), tenant: described.Tenant, rights: fmt.Sprint(described.Operations, described.Queues),
		readOnly: v.session.readOnly, operator: caller.IsOperator(),
	}
	if len(described.Limits) > 0 {
		origin := v.origin()
		key.exact, key.client, key.peer = caller.Fingerprint(), origin.Client, origin.Peer
	}
	if shown.personal() {
		key.session = v.session
	}
	return key
}

// personal reports whether a screen shows the session, and not only what its token allows.
func (s *screen) personal() bool { return s.path == "access" }

// A rendering is a live page, which all streams that show the same share: one of them renders it, in
// turns, and all send it.
type rendering struct {
	screen *screen
	values url.Values
	users  int // guarded by the lock of the streams

	turn  chan struct{} // holds an element while a stream renders or reads the fields below
	parts []livePart
	err   error
	next  time.Time // when it is rendered again
}

// A livePart is a fragment of a page as an event.
type livePart struct {
	id    string
	sum   [sha256.Size]byte // of the text
	event []byte
}

// join returns the rendering of a page. The caller calls leave.
func (s *streams) join(key renderingKey, shown *screen, values url.Values) (joined *rendering, leave func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	joined = s.renderings[key]
	if joined == nil {
		joined = &rendering{screen: shown, values: values, turn: make(chan struct{}, 1)}
		s.renderings[key] = joined
	}
	joined.users++
	return joined, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if joined.users--; joined.users == 0 {
			delete(s.renderings, key)
		}
	}
}

// look returns the page as it is, or was less than liveEvery ago, and when it is rendered again. It
// renders the page if it is time, unless another stream does: then it waits for that.
func (r *rendering) look(v *view) (parts []livePart, next time.Time, err error) {
	select {
	case r.turn <- struct{}{}:
		defer func() { <-r.turn }()
	case <-v.ctx().Done():
		return nil, next, v.ctx().Err()
	}
	began := time.Now()
	if began.Before(r.next) {
		return r.parts, r.next, r.err
	}
	parts, err = r.render(v)
	if v.ctx().Err() != nil {
		return nil, next, v.ctx().Err() // the page may lack something; the next stream renders it
	}
	r.parts, r.err = parts, err
	ended := time.Now()
	r.next = ended.Add(max(liveEvery, liveRest*ended.Sub(began)))
	return r.parts, r.next, r.err
}

// render renders the page with the rights of one stream.
func (r *rendering) render(v *view) ([]livePart, error) {
	ctx, cancel := context.WithTimeout(v.ctx(), pageTimeout)
	defer cancel()
	inTime := *v
	inTime.request = v.request.WithContext(ctx)
	p := &page{screen: r.screen, title: r.screen.title}
	if err := r.screen.show(&inTime, p); err != nil {
		return nil, err
	}
	parts := make([]livePart, len(p.fragments))
	for i, f := range p.fragments {
		var text bytes.Buffer
		h.Write(&text, f.node)
		data, _ := json.Marshal(map[string]string{"id": f.id, "html": text.String()}) // strings can be encoded
		parts[i] = livePart{f.id, sha256.Sum256(text.Bytes()), fmt.Appendf(nil, "event: fragment\ndata: %s\n\n", data)}
	}
	return parts, nil
}
