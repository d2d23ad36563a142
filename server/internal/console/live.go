package console

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
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
}

func (s *streams) init() {
	s.pool = share.New("console streams", "the console", maxStreams, retryStreams)
	s.closed = make(chan struct{})
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
	s := &stream{view: v, screen: shown, values: target.Query(), sent: make(map[string][sha256.Size]byte), control: http.NewResponseController(v.writer)}
	s.run()
	return nil
}

// A stream is a live stream of one page.
type stream struct {
	view    *view
	screen  *screen
	values  url.Values
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
		began := time.Now()
		if !s.look() {
			return
		}
		timer.Reset(max(liveEvery, liveRest*time.Since(began)))
	}
}

// look renders the page and sends the parts that have changed. It reports whether the browser
// is still there.
func (s *stream) look() bool {
	ctx, cancel := context.WithTimeout(s.view.ctx(), pageTimeout)
	defer cancel()
	v := *s.view
	v.request = v.request.WithContext(ctx)
	v.values, v.tenant = s.values, ""
	p := &page{screen: s.screen, title: s.screen.title}
	err := v.enter()
	if err == nil {
		v.caller = v.caller.Unmetered() // a page that stays open takes nothing from the token's other uses
		err = s.screen.show(&v, p)
	}
	switch {
	case err != nil && v.session.ended.Load():
		s.write("event: ended\ndata: {}\n\n")
		return false
	case err != nil:
		return s.write("event: failed\ndata: {}\n\n")
	}
	var out bytes.Buffer
	for _, f := range p.fragments {
		var text bytes.Buffer
		_ = f.node.Render(&text) // a buffer does not fail
		sum := sha256.Sum256(text.Bytes())
		if s.sent[f.id] == sum {
			continue
		}
		s.sent[f.id] = sum
		data, _ := json.Marshal(map[string]string{"id": f.id, "html": text.String()}) // strings can be encoded
		out.WriteString("event: fragment\ndata: ")
		out.Write(data)
		out.WriteString("\n\n")
	}
	if out.Len() == 0 {
		if s.quiet++; s.quiet < quietFor {
			return true
		}
		out.WriteString(": nothing changed\n\n")
	}
	s.quiet = 0
	return s.write(out.String())
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
