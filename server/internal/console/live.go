package console

import (
	"bytes"
	"crypto/sha256"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/mailboxmq/mailbox/internal/share"
)

const (
	// liveEvery is the pause between two looks of a live stream.
	liveEvery = 2 * time.Second
	// liveRest times the duration of a look is the least pause after it, so that a page that is
	// expensive, like a search in a large queue, does not keep a processor and the backend busy.
	liveRest = 10
	// maxStreams bounds the live streams of all tenants.
	maxStreams = 256
	// retryStreams is the RetryAfter when a share of live streams is used up.
	retryStreams = 10 * time.Second
	// quietFor is after how many looks without a change a comment is sent, so that proxies
	// keep the connection.
	quietFor = 7
)

// streams are the live streams of a handler. Tenants share the bound.
type streams struct {
	pool   *share.Pool
	once   sync.Once
	closed chan struct{}

	mu         sync.Mutex // guards the fields below
	renderings map[renderingKey]*rendering
}

func (s *streams) init() {
	s.pool = share.New("console streams", "the console", maxStreams, retryStreams)
	s.closed = make(chan struct{})
	s.renderings = make(map[renderingKey]*rendering)
}

func (s *streams) close() { s.once.Do(func() { close(s.closed) }) }

// live is GET live?page=…: the parts of a page that change, as server-sent events. It ends
// with the session, with the handler, and when the browser goes away.
func (v *view) live() error {
	target, err := url.Parse(v.get("page"))
	if err != nil || target.Host != "" {
		return errNoPage
	}
	shown := screenAt(target.Path)
	if shown == nil || shown.path == "confirm" {
		return errNoPage
	}
	pool, owner := v.handler.streams.pool, v.session.owner()
	if err := pool.Take(owner, 1); err != nil {
		return err
	}
	defer pool.Give(owner, 1)
	header := v.writer.Header()
	header.Set("Content-Type", "text/event-stream")
	header.Set("X-Accel-Buffering", "no") // proxies pass events on at once
	v.writer.WriteHeader(http.StatusOK)
	shared, leave := v.handler.streams.join(v.renderingKey(shown, target.Query()), shown, target.Query())
	defer leave()
	s := &stream{view: v, shared: shared, sent: make(map[string][sha256.Size]byte), control: http.NewResponseController(v.writer)}
	s.run()
	return nil
}

// A stream is a live stream of one page.
type stream struct {
	view    *view
	shared  *rendering
	sent    map[string][sha256.Size]byte // by fragment
	quiet   int
	control *http.ResponseController
}

func (s *stream) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-s.view.ctx().Done():
			return
		case <-s.view.handler.streams.closed:
			return
		case <-timer.C:
		}
		if s.view.session.ended.Load() || !time.Now().Before(s.view.session.expires) {
			s.write("event: ended\ndata: {}\n\n")
			return
		}
		next, ok := s.look()
		if !ok {
			return
		}
		timer.Reset(time.Until(next))
	}
}

// look sends the parts of the page that have changed. It returns when to look again, and reports
// whether the browser is still there. Each stream verifies its own token before it sends what another
// one has rendered.
func (s *stream) look() (next time.Time, ok bool) {
	v := *s.view
	v.values, v.tenant, v.recent = s.shared.values, "", liveEvery/2
	err := v.enter()
	if v.session.ended.Load() {
		s.write("event: ended\ndata: {}\n\n")
		return next, false
	}
	var parts []livePart
	next = time.Now().Add(liveEvery)
	if err == nil {
		v.caller = v.caller.Unmetered() // a page that stays open takes nothing from the token's other uses
		parts, next, err = s.shared.look(&v)
	}
	switch {
	case v.ctx().Err() != nil:
		return next, false
	case err != nil && v.session.ended.Load():
		s.write("event: ended\ndata: {}\n\n")
		return next, false
	case err != nil:
		return next, s.write("event: failed\ndata: {}\n\n")
	}
	var out bytes.Buffer
	for i := range parts {
		if p := &parts[i]; s.sent[p.id] != p.sum {
			s.sent[p.id] = p.sum
			out.Write(p.event)
		}
	}
	if out.Len() == 0 {
		if s.quiet++; s.quiet < quietFor {
			return next, true
		}
		out.WriteString(": nothing changed\n\n")
	}
	s.quiet = 0
	return next, s.write(out.String())
}

// write sends text, and reports whether the browser took it. The deadline ends with it: over HTTP/2
// one that passes while nothing is written would reset the stream.
func (s *stream) write(text string) bool {
	_ = s.control.SetWriteDeadline(time.Now().Add(s.view.handler.options.WriteTimeout))
	if _, err := s.view.writer.Write([]byte(text)); err != nil {
		return false
	}
	err := s.control.Flush()
	_ = s.control.SetWriteDeadline(time.Time{})
	return err == nil
}
