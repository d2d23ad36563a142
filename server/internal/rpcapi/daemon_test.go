package rpcapi_test

import (
	"context"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/gen/mailbox/v1/mailboxv1connect"
	"github.com/mailboxmq/mailbox/internal/keyring"
	"github.com/mailboxmq/mailbox/internal/testing/pipenet"
	"github.com/mailboxmq/mailbox/internal/testing/replytest"
	"github.com/mailboxmq/mailbox/internal/verify"
	"github.com/mailboxmq/mailbox/server/internal/broker"
	"github.com/mailboxmq/mailbox/server/internal/rpcapi"
)

// A daemon is a server of the surface with a client. On connections in memory it
// runs in virtual time too.
type daemon struct {
	broker  *broker.Broker
	handler *rpcapi.Handler
	ring    *keyring.Ring
	server  *http.Server
	dial    func(context.Context) (net.Conn, error)
	client  *http.Client
	served  sync.WaitGroup
	close   sync.Once
	backend driver.Opener
}

// newDaemon serves a backend, which it closes, on connections in memory.
func newDaemon(t testing.TB, backend driver.Opener, limits broker.Limits) *daemon {
	t.Helper()
	pipes := pipenet.Listen()
	return newDaemonOn(t, backend, limits, keyring.New(keyring.NewKey()), pipes, pipes.Dial)
}

// newDaemonOnLoopback serves a backend, which it closes, on TCP.
func newDaemonOnLoopback(t testing.TB, backend driver.Opener, ring *keyring.Ring) *daemon {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return newDaemonOn(t, backend, broker.Limits{}, ring, listener, func(ctx context.Context) (net.Conn, error) {
		var dialer net.Dialer
		return dialer.DialContext(ctx, "tcp", listener.Addr().String())
	})
}

func newDaemonOn(
	t testing.TB, backend driver.Opener, limits broker.Limits, ring *keyring.Ring,
	listener net.Listener, dial func(context.Context) (net.Conn, error),
) *daemon {
	t.Helper()
	b, err := broker.New(broker.Options{Opener: backend, Replies: replytest.StoreOf(backend), Ring: ring, Verifier: verify.New(ring, nil), Limits: limits})
	if err != nil {
		t.Fatal(err)
	}
	d := &daemon{broker: b, handler: rpcapi.New(rpcapi.Options{Broker: b}), ring: ring, dial: dial, backend: backend}
	d.server = &http.Server{Handler: d.handler, Protocols: rpcapi.Protocols(), ReadHeaderTimeout: pipenet.HeaderTimeout}
	d.served.Go(func() { _ = d.server.Serve(listener) })
	d.client = &http.Client{Transport: d.transport(func(p *http.Protocols) { p.SetUnencryptedHTTP2(true) })}
	t.Cleanup(d.stop)
	return d
}

// transport returns one that reaches the daemon with some protocols.
func (d *daemon) transport(set func(*http.Protocols)) *http.Transport {
	protocols := new(http.Protocols)
	set(protocols)
	return &http.Transport{
		Protocols:   protocols,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return d.dial(ctx) },
	}
}

func (d *daemon) stop() {
	d.close.Do(func() {
		d.client.CloseIdleConnections()
		_ = d.server.Close()
		d.served.Wait()
		_ = d.broker.Close()
		if closer, ok := d.backend.(interface{ Close() error }); ok {
			_ = closer.Close()
		}
	})
}

// mint returns a token for everything, but for what the caveats say.
func (d *daemon) mint(t testing.TB, tenant string, caveats ...capability.Caveat) capability.Token {
	t.Helper()
	if len(caveats) == 0 {
		caveats = []capability.Caveat{capability.EveryOperation()}
	}
	caveats = append(caveats, capability.Queues(capability.AnyQueue()), capability.ExpiresAt(time.Now().AddDate(200, 0, 0)))
	token, err := d.ring.Mint(tenant, caveats...)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// rpc returns a generated client that shows a token.
func (d *daemon) rpc(token capability.Token, options ...connect.ClientOption) mailboxv1connect.MailboxClient {
	options = append(options, connect.WithInterceptors(shows{token, nil}))
	return mailboxv1connect.NewMailboxClient(d.client, "http://daemon", options...)
}

// shows is a client's interceptor that sets metadata.
type shows struct {
	token capability.Token
	more  http.Header
}

func (s shows) set(h http.Header) {
	if !s.token.IsZero() {
		h.Set("Authorization", "Bearer "+s.token.Reveal())
	}
	for key, values := range s.more {
		h[key] = values
	}
}

func (s shows) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, r connect.AnyRequest) (connect.AnyResponse, error) {
		s.set(r.Header())
		return next(ctx, r)
	}
}

func (s shows) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return func(ctx context.Context, spec connect.Spec) connect.StreamingClientConn {
		conn := next(ctx, spec)
		s.set(conn.RequestHeader())
		return conn
	}
}

func (s shows) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}

// figure returns the counter of a queue.
func (d *daemon) figure(t *testing.T, name, queue string) float64 {
	t.Helper()
	families, err := d.broker.Metrics().Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			if family.GetName() == name && metric.GetLabel()[0].GetValue() == queue {
				return metric.GetCounter().GetValue()
			}
		}
	}
	return 0
}
