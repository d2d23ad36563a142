package oapapi_test

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/keyring"
	"github.com/mailboxmq/mailbox/internal/testing/replytest"
	"github.com/mailboxmq/mailbox/internal/verify"
	"github.com/mailboxmq/mailbox/remotebox"
	"github.com/mailboxmq/mailbox/server/internal/broker"
	"github.com/mailboxmq/mailbox/server/internal/oapapi"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// daemon is a broker behind the surface, and a token for everything.
type daemon struct {
	server  *oapapi.Server
	broker  *broker.Broker
	backend driver.Opener
	token   string
}

func newDaemon(t testing.TB, backend driver.Opener, options oapapi.Options) *daemon {
	t.Helper()
	ring := keyring.New(keyring.NewKey())
	return newDaemonWith(t, backend, options, ring, mint(t, ring))
}

func mint(t testing.TB, ring *keyring.Ring, caveats ...capability.Caveat) string {
	t.Helper()
	caveats = append(caveats, capability.EveryOperation(), capability.Queues(capability.AnyQueue()),
		capability.ExpiresAt(time.Now().AddDate(200, 0, 0)))
	token, err := ring.Mint("", caveats...)
	if err != nil {
		t.Fatal(err)
	}
	return token.Reveal()
}

func newDaemonWith(t testing.TB, backend driver.Opener, options oapapi.Options, ring *keyring.Ring, token string) *daemon {
	t.Helper()
	b, err := broker.New(broker.Options{
		Opener: backend, Replies: replytest.StoreOf(backend), Ring: ring, Verifier: verify.New(ring, nil),
		Limits: broker.Limits{MaxPayloadBytes: driver.DefaultMaxBodyBytes},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() }) // goroutines of blocking backends end; the backend may be closed already
	options.Broker = b
	return &daemon{server: oapapi.New(options), broker: b, backend: backend, token: token}
}

// pipe is a Dial that connects to the daemon without a network.
func (d *daemon) pipe(ctx context.Context, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	d.server.ServeConn(context.WithoutCancel(ctx), server)
	return client, nil
}

// make creates a queue.
func (d *daemon) make(t testing.TB, name string) {
	t.Helper()
	made, err := d.backend.OpenQueue(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	_ = made.Close()
}

// client returns a client over pipes.
func (d *daemon) client() *remotebox.Backend {
	return remotebox.New([]string{"pipe"}, d.token, &remotebox.Options{Dial: d.pipe})
}

// stop ends the daemon and its backend.
func (d *daemon) stop(t testing.TB) {
	t.Helper()
	if err := d.server.Close(); err != nil {
		t.Error(err)
	}
	if err := d.broker.Close(); err != nil {
		t.Error(err)
	}
	if backend, ok := d.backend.(interface{ Close() error }); ok {
		if err := backend.Close(); err != nil {
			t.Error(err)
		}
	}
}

// remote is a client with a daemon of its own. Closing it ends both.
type remote struct {
	*remotebox.Backend
	daemon *daemon
	t      testing.TB
	once   sync.Once
}

func newRemote(t testing.TB, d *daemon, client *remotebox.Backend) *remote {
	r := &remote{Backend: client, daemon: d, t: t}
	t.Cleanup(func() { _ = r.Close() })
	return r
}

// OpenQueue makes a queue, and opens it.
func (r *remote) OpenQueue(ctx context.Context, name string) (driver.Queue, error) {
	if made, err := r.daemon.backend.OpenQueue(ctx, name); err == nil {
		_ = made.Close()
	}
	return r.Backend.OpenQueue(ctx, name)
}

func (r *remote) Close() error {
	err := r.Backend.Close()
	r.once.Do(func() { r.daemon.stop(r.t) })
	return err
}
