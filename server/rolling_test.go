package server_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/remotebox"
	"github.com/mailboxmq/mailbox/server"
)

// pair is two daemons on one backend, which are restarted in turn.
type pair struct {
	t       *testing.T
	dir     string
	backend driver.Opener
	mu      sync.Mutex
	members map[string]*running
}

func (p *pair) run(name string) {
	p.t.Helper()
	daemon, err := server.New(server.Config{
		DataDir: p.dir, RevocationFile: filepath.Join(p.dir, "revocations."+name), Listen: "127.0.0.1:0", ListenOAP: "127.0.0.1:0",
	}, &server.Options{Logger: slog.New(slog.DiscardHandler), Opener: p.backend, Shared: true})
	if err != nil {
		p.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{Server: daemon, t: p.t, stop: cancel, done: make(chan error, 1), client: new(http.Client)}
	go func() { r.done <- r.Run(ctx) }()
	<-r.Started()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.members[name] = r
}

func (p *pair) dial(ctx context.Context, name string) (net.Conn, error) {
	p.mu.Lock()
	address := p.members[name].Address(server.OAP)
	p.mu.Unlock()
	return new(net.Dialer).DialContext(ctx, "tcp", address)
}

// worked waits for the given number of further acks.
func worked(t *testing.T, progress <-chan struct{}, times int) bool {
	t.Helper()
	patience := time.After(time.Minute)
	for range times {
		select {
		case <-progress:
		case <-patience:
			t.Error("nothing is acked any more")
			return false
		}
	}
	return true
}

// TestRollingRestartFailsNoRequest runs producers and consumers
// through two daemons on one backend, of which one is always running.
func TestRollingRestartFailsNoRequest(t *testing.T) {
	backend := membox.New(nil)
	defer backend.Close()
	p := &pair{t: t, dir: t.TempDir(), backend: backend, members: make(map[string]*running)}
	names := []string{"first", "second"}
	for _, name := range names {
		p.run(name)
	}
	client := remotebox.New(names, p.members["first"].OperatorToken().Reveal(), &remotebox.Options{Dial: p.dial})
	if err := client.ConfigureQueue(t.Context(), "orders", driver.Config{}); err != nil { // receives do not create it
		t.Fatal(err)
	}
	q, err := client.OpenQueue(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	var sent, acked atomic.Int64
	progress := make(chan struct{}, 1) // signals an ack
	var producing, consuming sync.WaitGroup
	sending, stopSending := context.WithCancel(t.Context())
	receiving, stopReceiving := context.WithCancel(t.Context())
	for range 4 {
		producing.Go(func() {
			for i := 0; sending.Err() == nil; i++ {
				if _, err := q.Send(t.Context(), []driver.Outgoing{{Body: fmt.Append(nil, i)}}); err != nil {
					t.Errorf("send: %v", err)
					return
				}
				sent.Add(1)
			}
		})
		consuming.Go(func() {
			for receiving.Err() == nil {
				got, err := q.Receive(receiving, driver.ReceiveRequest{Max: 10, Visibility: time.Hour, Wait: time.Minute})
				if err != nil && !errors.Is(err, context.Canceled) {
					t.Errorf("receive: %v", err)
					return
				}
				for i := range got {
					if err := q.Ack(t.Context(), []driver.Receipt{got[i].Receipt}); err != nil {
						t.Errorf("ack: %v", err)
						return
					}
					acked.Add(1)
					select {
					case progress <- struct{}{}:
					default: // progress is already signalled
					}
				}
			}
		})
	}
	for range 3 {
		for _, name := range names {
			worked(t, progress, 200)
			p.members[name].halt()
			p.run(name)
		}
	}
	stopSending()
	producing.Wait()
	for acked.Load() != sent.Load() && worked(t, progress, 1) {
	}
	stopReceiving()
	consuming.Wait()
	if stats, err := q.Stats(t.Context()); err != nil || stats != (driver.Stats{}) || acked.Load() != sent.Load() {
		t.Errorf("%d sent, %d acked, left %+v, %v", sent.Load(), acked.Load(), stats, err)
	}
	t.Logf("%d messages", sent.Load())
	if err := client.Close(); err != nil {
		t.Error(err)
	}
	for _, name := range names {
		p.members[name].halt()
	}
}
