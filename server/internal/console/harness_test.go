package console_test

import (
	"context"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/keyring"
	"github.com/mailboxmq/mailbox/internal/revocation"
	"github.com/mailboxmq/mailbox/internal/verify"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/reply"
	"github.com/mailboxmq/mailbox/schedule"
	"github.com/mailboxmq/mailbox/server/internal/broker"
	"github.com/mailboxmq/mailbox/server/internal/console"
)

// prefix is where the tests mount the console.
const prefix = "/some/where/"

// env is a console over a broker in memory.
type env struct {
	t       testing.TB
	broker  *broker.Broker
	ring    *keyring.Ring
	console *console.Handler
	tokens  map[string]capability.Token // by tenant
	aged    *atomic.Int64               // that of an agingBackend
}

// A backend is one that the console looks into.
type backend interface {
	driver.Opener
	driver.Admin
	Close() error
}

func open(t testing.TB) *env {
	t.Helper()
	aging := &agingBackend{Backend: membox.New(&membox.Options{Defaults: driver.Config{MaxDeliveries: 2, RetainReady: driver.Retention{Age: 7 * 24 * time.Hour}}})}
	d := openOn(t, aging)
	d.aged = &aging.aged
	return d
}

// An agingBackend has ready messages that are older than they are, for a history of an hour that a test makes at once.
type agingBackend struct {
	*membox.Backend
	aged atomic.Int64 // by how much, as a time.Duration
}

func (b *agingBackend) OpenQueue(ctx context.Context, name string) (driver.Queue, error) {
	q, err := b.Backend.OpenQueue(ctx, name)
	return agingQueue{q, &b.aged}, err
}

type agingQueue struct {
	driver.Queue
	aged *atomic.Int64
}

func (q agingQueue) Usage(ctx context.Context) (driver.Usage, error) {
	usage, err := q.Queue.Usage(ctx)
	for i := range usage.Shards {
		if usage.Shards[i].Ready > 0 {
			usage.Shards[i].OldestReady += time.Duration(q.aged.Load())
		}
	}
	return usage, err
}

func openOn(t testing.TB, backend backend) *env {
	t.Helper()
	d := &env{t: t, ring: keyring.New(keyring.NewKey()), tokens: make(map[string]capability.Token)}
	revoked := new(revocation.Memory)
	var err error
	d.broker, err = broker.New(broker.Options{
		Opener: backend, Replies: reply.NewMemory(nil), Ring: d.ring, Revocations: revoked, Verifier: verify.New(d.ring, &verify.Options{Revocations: revoked}),
	})
	if err != nil {
		t.Fatal(err)
	}
	d.console = console.New(console.Options{
		Broker: d.broker, Version: "1.2.3", LookTime: time.Minute, // a busy machine does not shorten pages
		Health: func(context.Context) console.Health {
			return console.Health{Notes: map[string]string{"durability": "disk", "profile": "macronode"}}
		},
		Settings: func() []console.Setting {
			return []console.Setting{{Key: "listen.http", Value: "127.0.0.1:9410", Help: "address for HTTP"}}
		},
	})
	t.Cleanup(func() {
		d.console.Close()
		if err := d.broker.Close(); err != nil {
			t.Error(err)
		}
		_ = backend.Close()
	})
	return d
}

// mint returns a token for these operations on these queues; without operations for all on all.
func (d *env) mint(tenant string, operations []capability.Operation, queues ...capability.Pattern) capability.Token {
	d.t.Helper()
	caveats := []capability.Caveat{capability.ExpiresAt(time.Now().Add(100 * time.Hour))}
	if len(operations) == 0 {
		caveats = append(caveats, capability.EveryOperation(), capability.Queues(capability.AnyQueue()))
	} else {
		caveats = append(caveats, capability.Operations(operations...), capability.Queues(queues...))
	}
	token, err := d.ring.Mint(tenant, caveats...)
	if err != nil {
		d.t.Fatal(err)
	}
	return token
}

// tokenOf returns a token for everything in a tenant, the same each time.
func (d *env) tokenOf(tenant string) capability.Token {
	d.t.Helper()
	if _, known := d.tokens[tenant]; !known {
		d.tokens[tenant] = d.mint(tenant, nil)
	}
	return d.tokens[tenant]
}

// caller returns a caller that may do everything in a tenant.
func (d *env) caller(tenant string) broker.Caller {
	return d.broker.Caller(d.tokenOf(tenant), broker.Origin{Worker: "shop@host-3:77", Protocol: "oap"})
}

// send sends a message and returns its id.
func (d *env) send(tenant, queue, body string, change ...func(*driver.Outgoing)) string {
	d.t.Helper()
	out := driver.Outgoing{Body: []byte(body)}
	for _, c := range change {
		c(&out)
	}
	sent, err := d.caller(tenant).Send(d.t.Context(), queue, []broker.Outgoing{{Outgoing: out}})
	if err = driver.At(err, 0); err != nil {
		d.t.Fatal(err)
	}
	return sent[0].ID
}

// deadLetter sends a message and dead-letters it with an error.
func (d *env) deadLetter(tenant, queue, body, cause string) string {
	d.t.Helper()
	id := d.send(tenant, queue, body)
	c := d.caller(tenant)
	got, err := c.Receive(d.t.Context(), queue, driver.ReceiveRequest{Max: 10, Visibility: time.Minute})
	if err != nil || len(got) != 1 {
		d.t.Fatalf("received %d messages, %v", len(got), err)
	}
	if err := c.DeadLetter(d.t.Context(), queue, []broker.DeadLetterRequest{{Receipt: got[0].Receipt, Reason: driver.ReasonFatal, Error: cause}}); err != nil {
		d.t.Fatal(err)
	}
	return id
}

// schedule stores a schedule.
func (d *env) schedule(tenant, queue, name string) {
	d.t.Helper()
	if _, err := d.caller(tenant).PutSchedule(d.t.Context(), queue, schedule.Schedule{Name: name, Cron: "0 3 * * *", Body: []byte(`{"report":"daily"}`)}); err != nil {
		d.t.Fatal(err)
	}
}

// request makes a reply slot, and answers it if answer is not nil.
func (d *env) request(tenant, id string, answer *driver.Answer) {
	d.t.Helper()
	slots := d.caller(tenant).Replies()
	err := slots.Create(d.t.Context(), id, time.Hour)
	if err == nil && answer != nil {
		err = slots.Resolve(d.t.Context(), id, *answer)
	}
	if err != nil {
		d.t.Fatal(err)
	}
}

// A browser keeps cookies, as one without script does.
type browser struct {
	*env
	cookie string
}

// answer is a page.
type answer struct {
	status int
	header http.Header
	body   string
}

func (d *env) browser() *browser { return &browser{env: d} }

func (b *browser) do(r *http.Request) answer {
	b.t.Helper()
	if b.cookie != "" {
		r.AddCookie(&http.Cookie{Name: "mailbox_console", Value: b.cookie})
	}
	w := httptest.NewRecorder()
	b.console.ServeHTTP(w, r)
	result := w.Result()
	for _, c := range result.Cookies() {
		if c.Name == "mailbox_console" {
			b.cookie = c.Value
		}
	}
	text, _ := io.ReadAll(result.Body)
	return answer{result.StatusCode, result.Header, string(text)}
}

func (b *browser) get(page string) answer {
	b.t.Helper()
	page, _, _ = strings.Cut(page, "#") // which browsers keep for themselves
	return b.do(httptest.NewRequestWithContext(b.t.Context(), http.MethodGet, prefix+page, nil))
}

// post sends a form of names and values.
func (b *browser) post(page string, pairs ...string) answer {
	b.t.Helper()
	return b.postIn(b.t.Context(), page, pairs...)
}

func (b *browser) postIn(ctx context.Context, page string, pairs ...string) answer {
	b.t.Helper()
	form := make(url.Values)
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i] == "operation" { // boxes that can be marked together
			form.Add(pairs[i], pairs[i+1])
		} else {
			form.Set(pairs[i], pairs[i+1])
		}
	}
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, prefix+page, strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return b.do(r)
}

// logIn signs in with a token.
func (d *env) logIn(token capability.Token, pairs ...string) *browser {
	d.t.Helper()
	b := d.browser()
	b.expect(b.post("login", append([]string{"token", token.Reveal()}, pairs...)...), http.StatusSeeOther)
	return b
}

func (b *browser) expect(a answer, status int, contains ...string) {
	b.t.Helper()
	if a.status != status {
		b.t.Errorf("got status %d, want %d: %s", a.status, status, main(a.body))
	}
	for _, text := range contains {
		if !strings.Contains(a.body, text) {
			b.t.Errorf("the page lacks %q: %s", text, main(a.body))
		}
	}
}

func (b *browser) lacks(a answer, texts ...string) {
	b.t.Helper()
	for _, text := range texts {
		if strings.Contains(a.body, text) {
			b.t.Errorf("the page contains %q: %s", text, main(a.body))
		}
	}
}

// main returns the main part of a page.
func main(page string) string {
	if _, after, ok := strings.Cut(page, "<main"); ok {
		return after
	}
	return page
}

var inputs = regexp.MustCompile(`<input type="hidden" name="([^"]*)" value="([^"]*)"`)

// submit confirms the change of a confirmation page, with further fields.
func (b *browser) submit(confirmation answer, pairs ...string) answer {
	b.t.Helper()
	return b.submitIn(b.t.Context(), confirmation, pairs...)
}

func (b *browser) submitIn(ctx context.Context, confirmation answer, pairs ...string) answer {
	b.t.Helper()
	_, form, ok := strings.Cut(confirmation.body, `action="do"`)
	if !ok {
		b.t.Fatalf("not a confirmation: %d %s", confirmation.status, main(confirmation.body))
	}
	var all []string
	for _, m := range inputs.FindAllStringSubmatch(form, -1) {
		all = append(all, m[1], html.UnescapeString(m[2]))
	}
	return b.postIn(ctx, "do", append(all, pairs...)...)
}

// stats returns the counts of a queue as text.
func (d *env) stats(tenant, queue string) string {
	d.t.Helper()
	s, err := d.caller(tenant).Stats(d.t.Context(), queue)
	if err != nil {
		d.t.Fatal(err)
	}
	return fmt.Sprintf("%d ready, %d delayed, %d in flight, %d dead, paused %v", s.Ready, s.Delayed, s.InFlight, s.Dead, s.Paused)
}
