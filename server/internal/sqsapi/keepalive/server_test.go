package keepalive_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/mailboxmq/mailbox/server/internal/sqsapi/keepalive"
	"github.com/mailboxmq/mailbox/server/internal/sqsapi/sqswire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// echo responds with the body of each request, and tells in the request id which package
// has read it: "http" or "keepalive". It accepts requests to / and no others.
type echo struct {
	server *keepalive.Server
	// during is called before the response on a connection that was taken over; may be
	// nil.
	during func(c *keepalive.Conn, r *http.Request)
	taken  atomic.Int64
	failed atomic.Int64
	left   atomic.Int64
}

func newEcho() *echo {
	return &echo{server: keepalive.New(keepalive.Options{
		ReadTimeout: 5 * time.Second, WriteTimeout: 5 * time.Second, Wants: func(r *http.Request) bool { return r.URL.Path == "/" },
	})}
}

func answerTo(r *http.Request, by string) *sqswire.Answer {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		body = []byte(err.Error())
	}
	return &sqswire.Answer{Status: http.StatusOK, ContentType: "text/plain", RequestID: by, Body: body}
}

func (e *echo) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	answer := answerTo(r, "http")
	var c *keepalive.Conn
	if r.URL.Path == "/" {
		c = e.server.Take(w, r)
	}
	if c == nil {
		w.Header().Set("X-Amzn-Requestid", "http")
		_, _ = w.Write(answer.Body)
		return
	}
	e.taken.Add(1)
	_ = c.WriteAnswer(answer)
	c.Serve(func(r *http.Request) {
		if e.during != nil {
			e.during(c, r)
		}
		if r.Context().Err() != nil || c.Left() {
			e.left.Add(1)
			return
		}
		if err := c.WriteAnswer(answerTo(r, "keepalive")); err != nil {
			e.failed.Add(1)
		}
	})
}

// pipes is a network within the process, which works in virtual time.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "pipe"} }

// client writes requests to a connection.
type client struct {
	net.Conn
	t *testing.T
	r *bufio.Reader
}

// dial serves e over a pipe, for as long as the test, and returns a client.
func dial(t *testing.T, e *echo) *client {
	t.Helper()
	network := &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
	dialed := make(chan net.Conn, 1)
	go func() {
		ours, theirs := net.Pipe()
		dialed <- ours
		network.conns <- theirs
	}()
	return connect(t, e, network, <-dialed)
}

// dialTCP is dial over loopback, where peeking is supported.
func dialTCP(t *testing.T, e *echo) *client {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	connection, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return connect(t, e, listener, connection)
}

func connect(t *testing.T, e *echo, listener net.Listener, connection net.Conn) *client {
	server := &http.Server{Handler: e, ReadHeaderTimeout: time.Minute, IdleTimeout: time.Minute}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener)
	}()
	t.Cleanup(func() {
		_ = connection.Close()
		_ = server.Close()
		<-done
	})
	return &client{connection, t, bufio.NewReader(connection)}
}

const plain = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n%s"

func (c *client) write(text string) {
	c.t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		c.t.Fatal(err)
	}
}

// send is write for another goroutine: a write to a pipe blocks until it is read.
func (c *client) send(text string) { _, _ = io.WriteString(c, text) }

// answered reads a response and checks which package read the request, and the body. It
// returns the headers, and whether the connection ends.
func (c *client) answered(by, body string) (header http.Header, last bool) {
	c.t.Helper()
	response, err := http.ReadResponse(c.r, nil)
	if err != nil {
		c.t.Fatalf("no response: %v", err)
	}
	defer func() { _ = response.Body.Close() }()
	got, err := io.ReadAll(response.Body)
	if err != nil || string(got) != body || response.Header.Get("X-Amzn-Requestid") != by || response.StatusCode != http.StatusOK {
		c.t.Errorf("%s answered %q (%v), want %s with %q", response.Header.Get("X-Amzn-Requestid"), got, err, by, body)
	}
	return response.Header, response.Close
}

// ask sends a request and reads the response.
func (c *client) ask(by, body string) {
	c.t.Helper()
	c.write(fmt.Sprintf(plain, len(body), body))
	c.answered(by, body)
}

// over checks that the connection is closed.
func (c *client) over() {
	c.t.Helper()
	if b, err := c.r.ReadByte(); err == nil {
		c.t.Errorf("the connection goes on with %q", b)
	}
}

func TestRequestsAfterFirstAreReadHere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEcho()
		c := dial(t, e)
		c.ask("http", "first")
		for i := range 10 {
			c.ask("keepalive", strings.Repeat("x", i*1000))
		}
		c.write(fmt.Sprintf(plain, 1, "x"))
		header, _ := c.answered("keepalive", "x")
		if date, err := http.ParseTime(header.Get("Date")); err != nil || time.Since(date) > 2*time.Second {
			t.Errorf("the date is %v, %v", date, err)
		}
		if got := header.Get("Content-Type"); got != "text/plain" {
			t.Errorf("the type is %q", got)
		}
		c.Close()
		synctest.Wait()
		if err := e.server.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestRequestsMayComeInPiecesOrTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := dial(t, newEcho())
		c.ask("http", "")
		request := fmt.Sprintf(plain, 5, "hello")
		for at := range len(request) {
			c.write(request[:at])
			synctest.Wait()
			c.write(request[at:])
			c.answered("keepalive", "hello")
		}
		go c.send(strings.Repeat(request, 20))
		for range 20 {
			c.answered("keepalive", "hello")
		}
	})
}

func TestOddRequestsGoBackToPackageHTTP(t *testing.T) {
	large := strings.Repeat("x", 100<<10)
	for name, odd := range map[string]struct{ request, body string }{
		"chunked":     {"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", "hello"},
		"other path":  {"POST /other HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello", "hello"},
		"bare feeds":  {"POST / HTTP/1.1\nHost: h\nContent-Length: 5\r\n\r\nhello", "hello"},
		"large":       {fmt.Sprintf(plain, len(large), large), large},
		"long head":   {"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\nX-Long: " + strings.Repeat("x", 40<<10) + "\r\n\r\nok", "ok"},
		"another way": {"OPTIONS / HTTP/1.1\r\nHost: h\r\n\r\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := newEcho()
				c := dial(t, e)
				for range 3 { // and is taken over again afterwards
					c.ask("http", "first")
					c.ask("keepalive", "second")
					next := fmt.Sprintf(plain, 4, "last")
					go c.send(odd.request + next)
					c.answered("http", odd.body)
					c.answered(map[bool]string{true: "http", false: "keepalive"}[name == "other path"], "last")
					if name == "other path" {
						c.ask("keepalive", "more")
					}
					c.write("POST /other HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n")
					c.answered("http", "")
				}
			})
		})
	}
}

func TestHandedBackConnectionsMayEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := dial(t, newEcho())
		c.ask("http", "first")
		c.write("POST / HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: 3\r\n\r\nbye")
		c.answered("http", "bye")
		c.over()
	})
}

func TestSlowRequestsAreCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := dial(t, newEcho())
		c.ask("http", "first")
		time.Sleep(50 * time.Second) // shorter than the idle timeout
		c.ask("keepalive", "second")
		c.write("POST / HT")
		time.Sleep(4 * time.Second)
		c.write("TP/1.1\r\n")
		began := time.Now()
		c.over()
		if took := time.Since(began); took != time.Second {
			t.Errorf("it was cut off %v after that", took)
		}
	})
}

func TestIdleConnectionsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := dial(t, newEcho())
		c.ask("http", "first")
		for range 5 {
			time.Sleep(59 * time.Second)
			c.ask("keepalive", "more")
		}
		began := time.Now()
		c.over()
		if took := time.Since(began); took < time.Minute || took > 70*time.Second {
			t.Errorf("it ended after %v", took)
		}
	})
}

func TestClientsThatDoNotReadAreCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEcho()
		c := dial(t, e)
		for _, by := range []string{"http", "keepalive", "keepalive"} {
			c.ask(by, "x")
			time.Sleep(30 * time.Second)
		}
		c.write(fmt.Sprintf(plain, 1, "x"))
		time.Sleep(11 * time.Second) // the response is not read
		if e.failed.Load() != 1 {
			t.Error("the response is still being written")
		}
	})
}

func TestWatchedRequestEndsWhenClientDisconnects(t *testing.T) {
	for name, dial := range map[string]func(*testing.T, *echo) *client{"pipe": dial, "TCP": dialTCP} {
		t.Run(name, func(t *testing.T) {
			e := newEcho()
			ended := make(chan error, 1)
			e.during = func(c *keepalive.Conn, r *http.Request) {
				c.Watch()
				<-r.Context().Done()
				ended <- r.Context().Err()
			}
			c := dial(t, e)
			c.ask("http", "first")
			c.write(fmt.Sprintf(plain, 0, ""))
			c.Close()
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			if err := e.server.Shutdown(t.Context()); err != nil || e.left.Load() != 1 {
				t.Errorf("%v, and %d left", err, e.left.Load())
			}
		})
	}
}

func TestWatchLosesNoBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEcho()
		e.during = func(c *keepalive.Conn, r *http.Request) {
			c.Watch()
			time.Sleep(time.Second)
		}
		c := dial(t, e)
		c.ask("http", "first")
		request := fmt.Sprintf(plain, 5, "hello")
		c.write(request)
		for range 5 {
			synctest.Wait() // now it is watched
			go c.send(request)
			c.answered("keepalive", "hello")
		}
		c.answered("keepalive", "hello")
	})
}

func TestDisconnectedClientGetsNoResponse(t *testing.T) {
	e := newEcho()
	working, leave := make(chan struct{}), make(chan struct{})
	e.during = func(*keepalive.Conn, *http.Request) { // without a watch
		close(working)
		<-leave
	}
	c := dialTCP(t, e)
	c.ask("http", "first")
	c.write(fmt.Sprintf(plain, 0, ""))
	<-working
	// On loopback the end of the connection arrives before Close returns.
	c.Close()
	close(leave)
	if err := e.server.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if e.left.Load() != 1 {
		t.Error("a response was written although the client had disconnected")
	}
}

func TestShutdownFinishesRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEcho()
		e.during = func(*keepalive.Conn, *http.Request) { time.Sleep(10 * time.Second) }
		busy, idle := dial(t, e), dial(t, e)
		busy.ask("http", "first")
		idle.ask("http", "first")
		busy.write(strings.Repeat(fmt.Sprintf(plain, 5, "hello"), 2)) // the second comes too late
		synctest.Wait()
		began := time.Now()
		down := make(chan error, 1)
		go func() { down <- e.server.Shutdown(t.Context()) }()
		idle.over()
		if took := time.Since(began); took != 0 {
			t.Errorf("the idle connection ended after %v", took)
		}
		if _, last := busy.answered("keepalive", "hello"); !last {
			t.Error("the client was not told that the connection ends")
		}
		busy.over()
		if err := <-down; err != nil || time.Since(began) != 10*time.Second {
			t.Errorf("it was over after %v: %v", time.Since(began), err)
		}
		late := dial(t, e)
		late.ask("http", "first")
		late.ask("http", "second") // no connection is taken over any more
	})
}

func TestShutdownClosesRemainingConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEcho()
		e.during = func(c *keepalive.Conn, r *http.Request) {
			c.Watch()
			<-r.Context().Done()
		}
		c := dial(t, e)
		c.ask("http", "first")
		c.write(fmt.Sprintf(plain, 0, ""))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := e.server.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		c.over()
	})
}

func TestPanicInHandlerClosesConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEcho()
		e.during = func(*keepalive.Conn, *http.Request) { panic(http.ErrAbortHandler) }
		c := dial(t, e)
		c.ask("http", "first")
		c.write(fmt.Sprintf(plain, 0, ""))
		c.over()
		if err := e.server.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
