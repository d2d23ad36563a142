package gates_test

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/oap"
	"github.com/mailboxmq/mailbox/remotebox"
)

// The variables that make a process of this test the attacker, or the busy process that it
// is compared with.
const (
	attackerRole = "MAILBOX_HOSTILE_ROLE" // "attacker" or "burner"
	attackerHTTP = "MAILBOX_HOSTILE_HTTP"
	attackerOAP  = "MAILBOX_HOSTILE_OAP"
	attackerAt   = "MAILBOX_HOSTILE_TOKEN"
	// attackThreads is how many threads the attacker, and the busy process, use.
	attackThreads = 2
	// attackFrom is the address of the attacker: another one of this machine.
	attackFrom = "127.0.0.2"
)

// An attacker is a tenant that is allowed everything in its own namespace, and does it
// all at the same time.
type attacker struct {
	http, oap string
	tokens    []string // minted, each with its own share
	client    *http.Client
	dialer    *net.Dialer
	did       sync.Map // attack → *[2]atomic.Int64: done and refused
}

// TestHostileProcess is not a test: [TestHostileTenantDoesNotHarmOthers] runs it as a
// separate process.
func TestHostileProcess(t *testing.T) {
	role := os.Getenv(attackerRole)
	if role == "" {
		t.Skip("a helper process of TestHostileTenantDoesNotHarmOthers, which starts it")
	}
	runtime.GOMAXPROCS(attackThreads)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { // the test stops the process by closing standard input
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	if role == "burner" {
		keepBusy(ctx)
		return
	}
	a := newAttacker(t)
	a.attack(ctx, t)
	a.did.Range(func(what, counts any) bool {
		c := counts.(*[2]atomic.Int64)
		fmt.Printf("attack %-22s done %8d refused %8d\n", what, c[0].Load(), c[1].Load())
		return true
	})
}

// keepBusy keeps as many threads busy as the attacker uses.
func keepBusy(ctx context.Context) {
	var threads sync.WaitGroup
	for range attackThreads {
		threads.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				_ = fmt.Sprint(n)
			}
		})
	}
	threads.Wait()
}

func newAttacker(t *testing.T) *attacker {
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(attackFrom)}}
	a := &attacker{
		http: os.Getenv(attackerHTTP), oap: os.Getenv(attackerOAP), tokens: []string{os.Getenv(attackerAt)}, dialer: dialer,
		client: &http.Client{Transport: &http.Transport{DialContext: dialer.DialContext, MaxIdleConnsPerHost: 256}},
	}
	for range 7 { // the tenant mints further tokens
		var minted struct{ Token string }
		if err := a.surface(0).post(t.Context(), "/v1/caps/mint", object{"tenant": "hostile", "caveats": []string{}}, &minted); err != nil {
			t.Fatal(err)
		}
		a.tokens = append(a.tokens, minted.Token)
	}
	return a
}

// token returns one of the tenant's tokens.
func (a *attacker) token(n int) string { return a.tokens[n%len(a.tokens)] }

func (a *attacker) surface(n int) *httpSurface {
	return &httpSurface{a.client, "http://" + a.http, a.token(n)}
}

func (a *attacker) box(n int) *remotebox.Backend {
	return remotebox.New([]string{a.oap}, a.token(n), &remotebox.Options{
		Patience: time.Second,
		Dial: func(ctx context.Context, address string) (net.Conn, error) {
			return a.dialer.DialContext(ctx, "tcp", address)
		},
	})
}

// attack runs all attacks until ctx ends.
func (a *attacker) attack(ctx context.Context, t *testing.T) {
	var all sync.WaitGroup
	for what, one := range map[string]func(ctx context.Context, n int) error{
		"queues over HTTP":       a.makeQueues,
		"queues over gRPC":       a.makeQueuesRPC,
		"queues over SQS":        a.makeQueuesSQS,
		"long leases":            a.holdLeases,
		"leases over SQS":        a.holdSQS,
		"sessions":               a.fillSession,
		"dedup keys":             a.fillDedup,
		"large bodies":           a.sendLarge,
		"streams over HTTP":      a.streamHTTP,
		"streams over gRPC":      a.streamRPC,
		"subscriptions":          a.subscribe,
		"looks":                  a.read,
		"deaths":                 a.deadLetter,
		"idle connections":       a.idle,
		"slow bodies":            a.drip,
		"narrowed tokens":        a.narrow,
		"reads without answers":  a.neverRead,
		"metrics without tokens": a.probe,
	} {
		counts := new([2]atomic.Int64)
		a.did.Store(what, counts)
		for n := range 4 {
			all.Go(func() { a.repeat(ctx, counts, n, one) })
		}
	}
	all.Wait()
}

// repeat repeats one attack until ctx ends.
func (a *attacker) repeat(ctx context.Context, counts *[2]atomic.Int64, n int, one func(context.Context, int) error) {
	for round := n; ctx.Err() == nil; round += 4 {
		if err := one(ctx, round); err == nil {
			counts[0].Add(1)
			continue
		}
		counts[1].Add(1)
		select { // a refusal is cheap for the attacker; without this pause it would get nothing but refusals
		case <-ctx.Done():
		case <-time.After(time.Millisecond):
		}
	}
}

func someName() string { return fmt.Sprintf("q-%016x", mathrand.Uint64()) }

func (a *attacker) makeQueues(ctx context.Context, n int) error {
	h := a.surface(n)
	if n%2 == 0 {
		return h.post(ctx, "/v1/queues/configure", object{"topic": someName(), "config": object{"shards": 16}}, nil)
	}
	_, _, err := h.send(ctx, someName(), fmt.Sprint(n), []byte("x"))
	return err
}

// batch returns messages with distinct dedup keys.
func batch(n, size int) []driver.Outgoing {
	messages := make([]driver.Outgoing, n)
	for i := range messages {
		messages[i] = driver.Outgoing{Body: make([]byte, size), DedupKey: someName(), Attributes: map[string]string{"a": "b"}}
	}
	return messages
}

// holdLeases sends, and receives with a visibility of twelve hours.
func (a *attacker) holdLeases(ctx context.Context, n int) error {
	box := a.box(n)
	defer box.Close()
	q, err := box.OpenQueue(ctx, "held")
	if err != nil {
		return err
	}
	for range 100 {
		if _, err := q.Send(ctx, batch(256, 16)); err != nil {
			return err
		}
		if _, err := q.Receive(ctx, driver.ReceiveRequest{Max: 256, Visibility: 12 * time.Hour}); err != nil {
			return err
		}
	}
	return nil
}

// fillSession makes the daemon remember long answers.
func (a *attacker) fillSession(ctx context.Context, n int) error {
	c, err := a.dialer.DialContext(ctx, "tcp", a.oap)
	if err != nil {
		return err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	token, err := capability.Parse(a.token(n))
	if err != nil {
		return err
	}
	var producer [16]byte
	_, _ = rand.Read(producer[:])
	queue := strings.Repeat("q", 200)
	frames := oap.AppendFrame(nil, &oap.Header{Flags: oap.Request | oap.Start, Code: oap.OpStart, Protocol: oap.ProtocolMailbox, Correlation: 1},
		token.RevealBinary(nil), oap.AppendStart(nil, &oap.StartRequest{Version: oap.ProtocolVersion, Producer: producer}))
	request := func(code uint16, correlation uint64, payload []byte) {
		frames = oap.AppendFrame(frames, &oap.Header{Flags: oap.Request, Code: code, Protocol: oap.ProtocolMailbox, Correlation: correlation}, nil, payload)
	}
	request(oap.OpOpen, 2, oap.AppendName(nil, queue))
	receipts := make([]driver.Receipt, 256)
	for i := uint64(1); i < 900; i++ {
		target := oap.Target{Ticket: oap.Ticket{Sequence: i, Behind: i - 1}, Handle: 1}
		if i == 1 {
			request(oap.OpSend, 3, oap.AppendOutgoing(oap.AppendSend(nil, target, 1), &driver.Outgoing{Body: []byte("x")}))
			continue
		}
		request(oap.OpAck, i+10, oap.AppendAck(nil, target, receipts))
	}
	go func() { _, _ = c.Write(frames) }()
	_, err = io.CopyN(io.Discard, c, 20<<20)
	return err
}

// fillDedup makes many tables of dedup keys.
func (a *attacker) fillDedup(ctx context.Context, n int) error {
	box := a.box(n)
	defer box.Close()
	q, err := box.OpenQueue(ctx, fmt.Sprintf("dedup-%d", n%500))
	if err != nil {
		return err
	}
	for range 20 {
		if _, err := q.Send(ctx, batch(256, 0)); err != nil {
			return err
		}
	}
	_, err = q.Purge(ctx)
	return err
}

// sendLarge sends large bodies, peeks at them and purges them.
func (a *attacker) sendLarge(ctx context.Context, n int) error {
	h := a.surface(n)
	for range 8 {
		if _, _, err := h.send(ctx, "large", someName(), make([]byte, 700<<10)); err != nil {
			return err
		}
	}
	if n%8 == 0 {
		return h.post(ctx, "/v1/purge", object{"topic": "large"}, nil)
	}
	_, err := h.receive(ctx, "large", wanted{most: 256, visibility: time.Second})
	return err
}

// idle opens connections that send nothing, or an incomplete request.
func (a *attacker) idle(ctx context.Context, n int) error {
	var held []net.Conn
	defer func() {
		for _, c := range held {
			_ = c.Close()
		}
	}()
	for i := range 1500 {
		address := a.http
		if i%2 == 0 {
			address = a.oap
		}
		c, err := a.dialer.DialContext(ctx, "tcp", address)
		if err != nil {
			break
		}
		held = append(held, c)
		switch i % 4 {
		case 0:
			_ = binary.Write(c, binary.BigEndian, uint32(1<<20)) // the length of a frame that never comes
		case 1:
			_, _ = io.WriteString(c, "POST /v1/send HTTP/1.1\r\nHost: x\r\n")
		case 3:
			_, _ = fmt.Fprintf(c, "POST /v1/ping HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: 2\r\n\r\n{}", a.token(n))
		}
	}
	select {
	case <-ctx.Done():
	case <-time.After(8 * time.Second):
	}
	return nil
}

// drip sends bodies byte by byte.
func (a *attacker) drip(ctx context.Context, n int) error {
	c, err := a.dialer.DialContext(ctx, "tcp", a.http)
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = fmt.Fprintf(c, "POST /v1/send HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: 700000\r\n\r\n", a.token(n))
	for range 100 {
		if err != nil || ctx.Err() != nil {
			return err
		}
		_, err = c.Write([]byte("x"))
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
	return nil
}

// probe requests pages that need no token, and sends forged tokens.
func (a *attacker) probe(ctx context.Context, n int) error {
	for _, path := range []string{"/healthz", "/readyz", "/metrics", "/"} {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+a.http+path, nil)
		if err != nil {
			return err
		}
		forged := []byte(a.token(n))
		forged[len(forged)-5] ^= 1
		request.Header.Set("Authorization", "Bearer "+string(forged))
		response, err := a.client.Do(request)
		if err != nil {
			return err
		}
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
	}
	return nil
}
