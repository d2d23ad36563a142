package guard_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/mailboxmq/mailbox/server/internal/guard"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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
	select {
	case <-l.done:
	default:
		close(l.done)
	}
	return nil
}

func (l *oneConn) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "pipe"} }

// serve serves one connection and returns the client's end of it.
func serve(t *testing.T, handler http.Handler) net.Conn {
	theirs, ours := net.Pipe()
	l := &oneConn{conns: make(chan net.Conn, 1), done: make(chan struct{})}
	l.conns <- ours
	s := &http.Server{Handler: handler, ReadHeaderTimeout: time.Second}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.Serve(l)
	}()
	t.Cleanup(func() {
		_ = theirs.Close()
		_ = s.Close()
		<-ended
	})
	return theirs
}

func ask(t *testing.T, c net.Conn, method, head, body string) {
	t.Helper()
	if _, err := fmt.Fprintf(c, "%s / HTTP/1.1\r\nHost: localhost\r\n%s\r\n%s", method, head, body); err != nil {
		t.Fatal(err)
	}
}

func TestUnreadBodyIsNotWaitedFor(t *testing.T) {
	for _, test := range []struct{ name, head, body string }{
		{"announced", "Content-Length: 1000\r\n", "x"},
		{"chunked", "Transfer-Encoding: chunked\r\n", "1\r\nx\r\n"},
	} {
		for _, size := range []int{2, 64 << 10} { // written when the handler has returned, and before
			t.Run(fmt.Sprint(test.name, size), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					began := time.Now()
					c := serve(t, guard.Bodies(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
						_, _ = io.WriteString(w, strings.Repeat("y", size))
					}), 5*time.Second))
					ask(t, c, "GET", test.head, test.body)
					answer, err := io.ReadAll(c)
					if took := time.Since(began); err != nil || took > 6*time.Second || len(answer) < size {
						t.Errorf("%d bytes and %v after %v, want an answer and the end", len(answer), err, took)
					}
				})
			})
		}
	}
}

func TestConnectionSurvivesBodyThatWasRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := serve(t, guard.Bodies(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(w, r.Body)
			_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
			time.Sleep(time.Minute)
			if r.Context().Err() != nil {
				t.Error("the context of the request ended")
			}
		}), 5*time.Second))
		reader := bufio.NewReader(c)
		for range 3 {
			ask(t, c, "POST", "Content-Length: 2\r\n", "hi")
			response, err := http.ReadResponse(reader, nil)
			if err != nil {
				t.Fatal(err)
			}
			if text, err := io.ReadAll(response.Body); string(text) != "hi" || err != nil {
				t.Errorf("answered %q and %v", text, err)
			}
		}
	})
}
