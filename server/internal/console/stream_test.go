package console_test

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/server/internal/broker"
	"github.com/mailboxmq/mailbox/server/internal/console"
)

// oneConn is a listener with one connection.
type oneConn struct {
	conns chan net.Conn
	done  chan struct{}
}

func (l *oneConn) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *oneConn) Close() error {
	close(l.done)
	return nil
}

func (l *oneConn) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "pipe"} }

// stream opens the live stream of a page over a connection in memory, and returns its lines.
func (b *browser) stream(page string, protocols *http.Protocols) *bufio.Scanner {
	b.t.Helper()
	theirs, ours := net.Pipe()
	l := &oneConn{conns: make(chan net.Conn, 1), done: make(chan struct{})}
	l.conns <- ours
	s := &http.Server{Handler: b.console, Protocols: protocols}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.Serve(l)
	}()
	transport := &http.Transport{Protocols: protocols, DialContext: func(context.Context, string, string) (net.Conn, error) { return theirs, nil }}
	r, err := http.NewRequestWithContext(b.t.Context(), http.MethodGet, "http://host"+prefix+"live?page="+page, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	r.AddCookie(&http.Cookie{Name: "mailbox_console", Value: b.cookie})
	response, err := transport.RoundTrip(r)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() {
		_ = response.Body.Close()
		transport.CloseIdleConnections()
		_ = s.Close()
		_ = theirs.Close()
		<-ended
	})
	if response.StatusCode != http.StatusOK {
		b.t.Fatalf("live: status %d", response.StatusCode)
	}
	return bufio.NewScanner(response.Body)
}

// until reads a stream until a line begins with prefix, and reports whether it came.
func until(lines *bufio.Scanner, prefix string) bool {
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), prefix) {
			return true
		}
	}
	return false
}

func TestQuietLiveStreamStaysOpen(t *testing.T) {
	for name, set := range map[string]func(*http.Protocols){
		"HTTP/1": func(p *http.Protocols) { p.SetHTTP1(true) },
		"HTTP/2": func(p *http.Protocols) { p.SetUnencryptedHTTP2(true) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := open(t)
				b := d.logIn(d.mint("", nil))
				var protocols http.Protocols
				set(&protocols)
				lines := b.stream("health", &protocols)
				for range 5 { // each comes after a pause that is longer than the write timeout
					if !until(lines, ": nothing changed") {
						t.Fatalf("the stream ended: %v", lines.Err())
					}
				}
			})
		})
	}
}

func TestExpensivePageIsRenderedSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t)
		looks := 0
		d.console = console.New(console.Options{Broker: d.broker, Health: func(context.Context) console.Health {
			looks++
			time.Sleep(3 * time.Second)
			return console.Health{}
		}})
		defer d.console.Close()
		b := d.logIn(d.mint("", nil))
		ctx, leave := context.WithTimeout(t.Context(), time.Minute)
		defer leave()
		b.expect(b.do(httptest.NewRequestWithContext(ctx, http.MethodGet, prefix+"live?page=health", nil)), http.StatusOK, "event: fragment")
		if looks != 2 {
			t.Errorf("%d looks of 3 s in a minute, want 2", looks)
		}
	})
}

// arrivals counts genuine tokens on a connection.
type arrivals struct{ shown int }

func (a *arrivals) Shown() { a.shown++ }

// A connection without a token is closed after half a minute, and with it a live stream.
func TestSessionCountsAsTokenOfConnection(t *testing.T) {
	d := open(t)
	b := d.logIn(d.mint("", nil))
	var connection arrivals
	r, err := http.NewRequestWithContext(broker.WithArrival(t.Context(), &connection), http.MethodGet, prefix+"queues", nil)
	if err != nil {
		t.Fatal(err)
	}
	b.expect(b.do(r), http.StatusOK)
	if connection.shown == 0 {
		t.Error("the connection of a session counts as one without a token")
	}
}
