package httpapi_test

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/driver/drivertest"
	"github.com/mailboxmq/mailbox/internal/keyring"
	"github.com/mailboxmq/mailbox/internal/revocation"
	"github.com/mailboxmq/mailbox/internal/testing/pipenet"
	"github.com/mailboxmq/mailbox/internal/testing/replytest"
	"github.com/mailboxmq/mailbox/internal/testing/sabotage"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
	"github.com/mailboxmq/mailbox/internal/verify"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/server/internal/broker"
	"github.com/mailboxmq/mailbox/server/internal/httpapi"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// service is a daemon's HTTP surface in front of a backend, within the process.
type service struct {
	broker  *broker.Broker
	ring    *keyring.Ring
	revoked *revocation.Memory
	server  *http.Server
	client  *http.Client
	done    chan struct{}
}

func newService(t testing.TB, backend driver.Opener, limits broker.Limits) *service {
	t.Helper()
	return newServiceWith(t, backend, limits, keyring.New(keyring.NewKey()))
}

func newServiceWith(t testing.TB, backend driver.Opener, limits broker.Limits, ring *keyring.Ring) *service {
	t.Helper()
	s := &service{ring: ring, revoked: new(revocation.Memory), done: make(chan struct{})}
	var err error
	s.broker, err = broker.New(broker.Options{
		Opener: backend, Replies: replytest.StoreOf(backend), Ring: s.ring, Revocations: s.revoked, Limits: limits,
		Verifier: verify.New(s.ring, &verify.Options{Revocations: s.revoked}),
	})
	if err != nil {
		t.Fatal(err)
	}
	listener := pipenet.Listen()
	s.server = &http.Server{Handler: httpapi.New(httpapi.Options{Broker: s.broker}), ReadHeaderTimeout: pipenet.HeaderTimeout}
	s.client = &http.Client{Transport: &http.Transport{DialContext: listener.DialContext, MaxIdleConnsPerHost: 64}}
	go func() {
		defer close(s.done)
		if err := s.server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("serve: %v", err)
		}
	}()
	return s
}

func (s *service) close() error {
	s.client.CloseIdleConnections()
	err := s.server.Close()
	<-s.done
	return errors.Join(err, s.broker.Close())
}

func (s *service) mint(t testing.TB, tenant string, caveats ...capability.Caveat) capability.Token {
	t.Helper()
	caveats = append(caveats, capability.ExpiresAt(time.Now().AddDate(200, 0, 0)))
	if len(caveats) == 1 {
		caveats = append(caveats, capability.EveryOperation(), capability.Queues(capability.AnyQueue()))
	}
	token, err := s.ring.Mint(tenant, caveats...)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// openInFrontOf returns a client of a daemon in front of a backend, which it closes.
func openInFrontOf(t testing.TB, backend sabotage.Backend, ring *keyring.Ring) driver.Opener {
	s := newServiceWith(t, backend, broker.Limits{}, ring)
	return newClient(s.client, "http://mailbox", s.mint(t, ""), func() error { return errors.Join(s.close(), backend.Close()) })
}

// openMemory is openInFrontOf an empty memory backend.
func openMemory(t testing.TB) driver.Opener {
	return openInFrontOf(t, membox.New(nil), keyring.New(keyring.NewKey()))
}

var wire = sabotage.Wire{Open: openInFrontOf, ByName: true, Hides: sabotage.Merged(sabotage.NoFirings(), map[string]string{
	"takes-any-mode":          "modes have names here, and the daemon knows no others",
	"denies-that-it-releases": "the daemon refuses what the traits of its backend deny",
})}

var overMemory = wire.Backend()

// TestConformance runs the whole suite through HTTP.
func TestConformance(t *testing.T) {
	volume.Repeats(t)
	drivertest.Run(t, overMemory)
}

// TestFlowSaboteursAreCaughtThroughHTTP shows that the suite sees faults of time and flow through the
// wire.
func TestFlowSaboteursAreCaughtThroughHTTP(t *testing.T) {
	volume.InFull(t)
	sabotage.ExpectFlowCaught(t, wire)
}

func TestAgreesWithTheModel(t *testing.T) {
	volume.Repeats(t)
	drivertest.RunRandom(t, overMemory, volume.Of(1_000))
}

func TestKeepsItsPromisesUnderLoad(t *testing.T) {
	volume.Repeats(t)
	drivertest.RunConcurrent(t, overMemory, drivertest.Load{
		Config: driver.Config{MaxDeliveries: 3}, Messages: volume.Of(10_000),
	})
}
