package gates_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/internal/keyring"
	"github.com/mailboxmq/mailbox/internal/testing/proctest"
)

// A drill records what 16 clients of a token observe while its key is rotated and it is revoked.
type drill struct {
	stop       atomic.Bool
	mu         sync.Mutex
	confirmed  map[string]bool // ids of messages that were sent
	acked      map[string]bool
	lastBegan  time.Time // of the last successful operation to begin
	lastEnded  time.Time
	refused    map[string]int
	successes  int
	unexpected []error
}

// note records how an operation ended.
func (d *drill) note(began time.Time, err error) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch code := codeOf(err); {
	case err == nil:
		d.successes++
		if began.After(d.lastBegan) {
			d.lastBegan = began
		}
		if now := time.Now(); now.After(d.lastEnded) {
			d.lastEnded = now
		}
	case code == "E_CAP_AUTH" || code == "E_CAP_SCOPE":
		d.refused[code]++
	default:
		d.unexpected = append(d.unexpected, err)
	}
	return err == nil
}

// work sends, receives and acks until it is told to stop.
func (d *drill) work(t *testing.T, s surface, n int) {
	const queue = "orders"
	for i := 0; !d.stop.Load(); i++ {
		key := fmt.Sprintf("%d-%d", n, i)
		began := time.Now()
		id, _, err := s.send(t.Context(), queue, key, []byte(key))
		if d.note(began, err) {
			d.mu.Lock()
			d.confirmed[id] = true
			d.mu.Unlock()
		} else {
			pause(5 * time.Millisecond)
		}
		if n%4 == 3 {
			continue // send more than is received, so that messages wait
		}
		began = time.Now()
		got, err := s.receive(t.Context(), queue, wanted{most: 2, visibility: 30 * time.Second, wait: time.Second})
		if !d.note(began, err) {
			continue
		}
		for _, m := range got {
			if err := s.ack(t.Context(), queue, m); err == nil { // acks of earlier deliveries work even after the revocation
				d.mu.Lock()
				d.acked[m.id] = true
				d.mu.Unlock()
			}
		}
	}
}

// TestG10RevocationDrillUnderLoad rotates the key and revokes the token of 16 clients
// of three protocols while they work. Rotation fails no request. After the answer of the
// revocation no new request succeeds, and every message that was confirmed and
// not acked can be received by others.
func TestG10RevocationDrillUnderLoad(t *testing.T) {
	t.Parallel() // mostly waits
	const ttl = 5 * time.Second
	d := start(t, append(onDisk, "--cap-cache-ttl="+ttl.String(), "--log-level=info")...)
	operator := openHTTP(t, d.http, d.token)
	var minted struct {
		Token string `json:"token"`
		ID    string `json:"token_id"`
	}
	expires := capability.ExpiresAt(time.Now().Add(time.Hour)).String()
	err := operator.post(t.Context(), "/v1/caps/mint", object{"caveats": []string{
		capability.Operations(capability.OpSend, capability.OpRecv, capability.OpAck).String(), "mbx:topic=orders", expires,
	}}, &minted)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := operator.send(t.Context(), "orders", "first", []byte("tea")); err != nil { // the token does not allow creating queues
		t.Fatal(err)
	}
	drill := &drill{confirmed: make(map[string]bool), acked: make(map[string]bool), refused: make(map[string]int)}
	var clients sync.WaitGroup
	for n := range 16 {
		client := surfaces[n%len(surfaces)].open(t, d, minted.Token)
		clients.Go(func() { drill.work(t, client, n) })
	}
	for range 2 {
		pause(500 * time.Millisecond)
		rotate(t, d)
	}
	pause(500 * time.Millisecond)
	proctest.Eventually(t, 2*time.Minute, "100 successes", func() bool {
		drill.mu.Lock()
		defer drill.mu.Unlock()
		return drill.successes >= 100
	})
	drill.mu.Lock()
	if len(drill.refused) > 0 {
		t.Errorf("before the revocation: refused %v", drill.refused)
	}
	drill.mu.Unlock()
	if err := operator.post(t.Context(), "/v1/caps/revoke", object{"token_id": minted.ID}, nil); err != nil {
		t.Fatal(err)
	}
	revoked := time.Now()
	pause(ttl + time.Second)
	drill.stop.Store(true)
	clients.Wait()
	if late := drill.lastBegan.Sub(revoked); late > 0 {
		t.Errorf("an operation that began %v after the revocation was answered has succeeded", late)
	}
	if late := drill.lastEnded.Sub(revoked); late > ttl {
		t.Errorf("the last success came %v after the revocation", late)
	}
	for i, err := range drill.unexpected {
		if i < 5 {
			t.Errorf("unexpected: %v", err)
		}
	}
	left := drain(t, d, operator, drill)
	t.Logf("%d operations of 16 clients before the revocation; the last to succeed began %v and ended %v after its answer; %v refused within %v; %d messages confirmed, %d acked, %d left for others, 0 lost",
		drill.successes, round(drill.lastBegan.Sub(revoked)), round(drill.lastEnded.Sub(revoked)), drill.refused, ttl+time.Second, len(drill.confirmed), len(drill.acked), left)
}

// revokeAcross revokes a token at one daemon while it is used at the other, over each
// protocol. The specification allows 30 seconds.
func revokeAcross(t *testing.T, pair [2]*daemon) {
	t.Helper()
	operator := openHTTP(t, pair[0].http, pair[0].token)
	var minted struct {
		Token string `json:"token"`
		ID    string `json:"token_id"`
	}
	expires := capability.ExpiresAt(time.Now().Add(time.Hour)).String()
	if err := operator.post(t.Context(), "/v1/caps/mint", object{"caveats": []string{"mbx:op=send", "mbx:topic=*", expires}}, &minted); err != nil {
		t.Fatal(err)
	}
	if _, _, err := operator.send(t.Context(), "revoked", "first", []byte("tea")); err != nil {
		t.Fatal(err)
	}
	clients := make([]surface, len(surfaces))
	for i, s := range surfaces {
		clients[i] = s.open(t, pair[1], minted.Token)
		if _, _, err := clients[i].send(t.Context(), "revoked", s.name, []byte("tea")); err != nil {
			t.Fatalf("%s, before: %v", s.name, err)
		}
	}
	if err := operator.post(t.Context(), "/v1/caps/revoke", object{"token_id": minted.ID}, nil); err != nil {
		t.Fatal(err)
	}
	revoked := time.Now()
	for i, s := range surfaces {
		proctest.Eventually(t, 30*time.Second, "refused at the other daemon by "+s.name, func() bool {
			_, _, err := clients[i].send(t.Context(), "revoked", s.name, []byte("tea"))
			return codeOf(err) == "E_CAP_AUTH"
		})
	}
	t.Logf("a token revoked at one daemon was refused by all protocols of the other %v later", time.Since(revoked).Round(time.Millisecond))
}

// rotate rotates the key like the command line: a new key in the file, and SIGHUP.
func rotate(t *testing.T, d *daemon) {
	t.Helper()
	path := filepath.Join(d.dir, "keys")
	ring, err := keyring.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := ring.Rotate(keyring.NewKey()); err != nil {
		t.Fatal(err)
	}
	if err := ring.WriteFile(path); err != nil {
		t.Fatal(err)
	}
	before := strings.Count(d.Stderr.String(), `"reloaded"`)
	d.Signal(t, syscall.SIGHUP)
	proctest.Eventually(t, time.Minute, "reloaded", func() bool { return strings.Count(d.Stderr.String(), `"reloaded"`) > before })
}

// drain receives what the revoked clients have left, and fails the test for missing messages.
func drain(t *testing.T, d *daemon, operator *httpSurface, drill *drill) int {
	t.Helper()
	there := make(map[string]bool)
	for {
		got, err := operator.receive(t.Context(), "orders", wanted{most: 200, visibility: 10 * time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		if len(got) == 0 {
			break
		}
		for _, m := range got {
			there[m.id] = true
		}
	}
	held := operator.stats(t, "orders").InFlight - len(there) // by revoked clients; their leases expire
	missing := 0
	for id := range drill.confirmed {
		if !drill.acked[id] && !there[id] {
			missing++
		}
		if drill.acked[id] && there[id] {
			t.Errorf("%s was acked and is there", id)
		}
	}
	if missing > held {
		t.Errorf("%d messages are missing, and %d are held", missing, held)
	}
	return len(there)
}
