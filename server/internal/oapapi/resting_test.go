package oapapi_test

import (
	"context"
	"crypto/tls"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/remotebox"
	"github.com/mailboxmq/mailbox/server/internal/oapapi"
)

// slowConn writes everything in two halves, pause apart.
type slowConn struct {
	net.Conn
	pause *time.Duration
}

func (c slowConn) Write(b []byte) (int, error) {
	half := len(b) / 2
	n, err := c.Conn.Write(b[:half])
	if err != nil {
		return n, err
	}
	<-time.After(*c.pause)
	m, err := c.Conn.Write(b[half:])
	return n + m, err
}

// TestConnectionRestsWithinRecordOfTLS lets a connection rest when a part of a record has
// arrived.
func TestConnectionRestsWithinRecordOfTLS(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon(t, membox.New(nil), oapapi.Options{RestAfter: time.Second, IdleTimeout: time.Minute})
		defer d.stop(t)
		d.make(t, "orders")
		certificate, _ := selfSigned(t)
		dials := 0
		var pause time.Duration
		client := remotebox.New([]string{"pipe"}, d.token, &remotebox.Options{Dial: func(ctx context.Context, _ string) (net.Conn, error) {
			dials++
			here, there := net.Pipe()
			d.server.ServeConn(context.WithoutCancel(ctx), tls.Server(there, &tls.Config{
				Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS13,
			}))
			return tls.Client(slowConn{here, &pause}, &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13}), nil //nolint:gosec // G402: a pipe
		}})
		defer client.Close()
		cycle(t, client)
		for _, pause = range []time.Duration{time.Second - 1, time.Second, time.Second + 1, 3 * time.Second} {
			time.Sleep(time.Second)
			cycle(t, client)
		}
		if dials != 1 {
			t.Errorf("%d connections, want 1", dials)
		}
	})
}
