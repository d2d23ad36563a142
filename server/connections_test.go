package server

import (
	"errors"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	pools "github.com/mailboxmq/mailbox/internal/share"
)

// A pipeListener accepts one end of a pipe.
type pipeListener struct {
	net.Listener
	end net.Conn
}

func (l *pipeListener) Accept() (net.Conn, error) { return l.end, nil }

func TestIdleConnectionWithoutTokenIsClosedSooner(t *testing.T) {
	for name, test := range map[string]struct {
		shown bool
		want  time.Duration
	}{"no token": {false, noTokenIdle}, "a token": {true, 10 * time.Minute}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, end := net.Pipe()
				defer client.Close()
				pool := pools.New("connections", "max_conns", 10, time.Second)
				l := &boundedListener{Listener: &pipeListener{end: end}, pool: pool, changed: func() {}, refused: func() {}}
				c, err := l.Accept()
				if err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				if err := c.SetReadDeadline(began.Add(10 * time.Minute)); err != nil {
					t.Fatal(err)
				}
				if test.shown {
					c.(*boundedConn).Shown()
				}
				_, err = c.Read(make([]byte, 1))
				if !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) != test.want {
					t.Errorf("%v after %v, want %v", err, time.Since(began), test.want)
				}
				_ = c.Close()
				_ = c.Close()
				if used := pool.Stats().Used; used != 0 {
					t.Errorf("%d connections count", used)
				}
			})
		})
	}
}
