package monitoring_test

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/internal/testing/proctest"
	"github.com/mailboxmq/mailbox/internal/testing/redistest"
	"github.com/mailboxmq/mailbox/server"
)

// troubles are the alerts that a daemon can be brought to within seconds, by the job whose
// daemon is in that trouble. The others need minutes: a slow disk, messages of five
// minutes, a quarter of a million revocations. alerts_test.yml has series for all.
var troubles = map[string][]string{
	"busy": {
		"MailboxAlmostFull", "MailboxRefusesMessages", "MailboxDeadLettersGrow", "MailboxDeadLettersUnattended", "MailboxdNotEmptying",
		"MailboxdMessagesExpireSoon", "MailboxdDeadLettersAlmostFull", "MailboxdDeadLettersExpireSoon", "MailboxdInFlightAlmostFull",
		"MailboxdConnectionsAlmostFull", "MailboxdShareAlmostFull", "MailboxdShareRefuses", "MailboxdTokensRefused",
	},
	"full_disk": {"MailboxdDiskAlmostFull", "MailboxdDiskFull"},
	"draining":  {"MailboxdNotServing"},
	"down":      {"MailboxdDown"},
	"no_redis":  {"MailboxRefusesMessages"},
}

// firing returns the alerts whose expression holds now, by job. The time for which it has to
// hold is not waited.
func (p *prom) firing() map[string][]string {
	p.t.Helper()
	p.at = time.Now()
	found := make(map[string][]string)
	for _, rule := range readAlerts(p.t) {
		jobs := make(map[string]bool)
		for _, s := range p.data(rule.Expr) {
			jobs[s.Metric["job"]] = true
		}
		for job := range jobs {
			found[job] = append(found[job], rule.Alert)
		}
	}
	return found
}

// scraped waits until every target was scraped.
func (p *prom) scraped(targets int) {
	p.t.Helper()
	proctest.Eventually(p.t, 3*time.Minute, "a scrape of each target", func() bool {
		p.at = time.Now()
		seen, err := p.ask("count(mailbox_info)")
		return err == nil && len(seen) == 1 && seen[0].Value[1] == fmt.Sprint(targets)
	})
}

// crowd brings a daemon with few in-flight messages to its limits.
func (d *daemon) crowd() {
	d.t.Helper()
	token := d.OperatorToken().Reveal()
	d.prepare()
	d.post(server.HTTP, "/v1/queues/configure", token, `{"topic":"dying","config":{"retain_ready_ms":3000,"retain_dead_ms":3000}}`, http.StatusOK)
	d.post(server.HTTP, "/v1/queues/configure", token, `{"topic":"dead","config":{"retain_ready_ms":1000,"max_dead":105}}`, http.StatusOK)
	for i := range 101 {
		d.post(server.HTTP, "/v1/send", token, fmt.Sprintf(`{"topic":"dead","idem_key":"%d","payload_b64":""}`, i), http.StatusOK)
	}
	for i := range 5 {
		d.post(server.HTTP, "/v1/send", token, fmt.Sprintf(`{"topic":"held","idem_key":"%d","payload_b64":""}`, i), http.StatusOK)
	}
	d.post(server.HTTP, "/v1/recv", token, `{"topic":"held","visibility_ms":600000,"max_messages":4}`, http.StatusOK)
}

// connect opens connections until the daemon refuses one. It closes them after a time, because
// none shows a token.
func (d *daemon) connect() {
	d.t.Helper()
	for {
		c, err := net.Dial("tcp", d.Address(server.OAP))
		if err != nil {
			d.t.Fatal(err)
		}
		d.t.Cleanup(func() { _ = c.Close() })
		_ = c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		if _, err := c.Read(make([]byte, 1)); err != nil && !isTimeout(err) {
			return // it was closed at once: there are as many as may be
		}
	}
}

func isTimeout(err error) bool {
	timeout, ok := err.(net.Error) //nolint:errorlint // of a read it is not wrapped
	return ok && timeout.Timeout()
}

// strain keeps a crowded daemon with few connections at its limits, and refusing.
func (d *daemon) strain(i int) {
	d.t.Helper()
	d.connect()
	token := d.OperatorToken().Reveal()
	d.post(server.HTTP, "/v1/send", token, fmt.Sprintf(`{"topic":"dying","idem_key":"%d","payload_b64":""}`, i), http.StatusOK)
	d.post(server.HTTP, "/v1/send", token, fmt.Sprintf(`{"topic":"full","idem_key":"%d","payload_b64":""}`, i), http.StatusTooManyRequests)
	d.post(server.HTTP, "/v1/recv", token, `{"topic":"held"}`, http.StatusTooManyRequests)
	for range 60 {
		d.post(server.HTTP, "/v1/stats", "wrong", `{"topic":"full"}`, http.StatusUnauthorized)
	}
}

// sendUntil sends until ctx ends, whatever the answer.
func (d *daemon) sendUntil(ctx context.Context) {
	for ctx.Err() == nil {
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+d.Address(server.HTTP)+"/v1/send",
			strings.NewReader(`{"topic":"jobs","idem_key":"k","payload_b64":""}`))
		if err != nil {
			return
		}
		request.Header.Set("Authorization", "Bearer "+d.OperatorToken().Reveal())
		if response, err := d.client.Do(request); err == nil {
			_, _ = io.Copy(io.Discard, response.Body)
			_ = response.Body.Close()
		}
	}
}

// TestAlertsFireOnDaemonsInTrouble evaluates alerts on scrapes of real daemons: before
// they are in trouble none holds, and after that those of their trouble do.
func TestAlertsFireOnDaemonsInTrouble(t *testing.T) {
	t.Parallel()
	redis := redistest.Standalone(t)
	daemons := map[string]*daemon{
		"busy":      startDaemon(t, server.Config{GlobalInFlight: 4, MaxConnections: 7}),
		"full_disk": startDaemon(t, server.Config{DiskReserve: 1 << 50}),
		"draining":  startDaemon(t, server.Config{DrainDelay: 10 * time.Minute}),
		"down":      startDaemon(t, server.Config{}),
		"no_redis":  startDaemon(t, server.Config{Backend: "redis://" + redis.Addr()}),
	}
	var targets []target
	for job, d := range daemons {
		targets = append(targets, target{job, d.Address(server.Metrics), "/metrics"})
	}
	p := startPrometheus(t, targets...)
	p.scraped(len(targets))
	for until := time.Now().Add(3 * time.Minute); ; { // scrapes time out on a busy machine, and are repeated
		early := p.firing()
		delete(early, "full_disk") // which was so from its start
		if len(early) == 0 {
			break
		}
		if time.Now().After(until) {
			t.Fatalf("%v hold before there is trouble", early)
		}
	}
	daemons["down"].stop()
	redis.Kill()
	ctx, cancel := context.WithCancel(t.Context())
	var sender sync.WaitGroup
	sender.Go(func() { daemons["no_redis"].sendUntil(ctx) })
	defer sender.Wait()
	defer cancel()
	daemons["busy"].crowd()
	t.Cleanup(daemons["draining"].DrainNow)
	daemons["draining"].stop()
	missing := make(map[string]bool)
	for job, alerts := range troubles {
		for _, alert := range alerts {
			missing[job+" "+alert] = true
		}
	}
	began := time.Now()
	for i := 0; len(missing) > 0 && time.Since(began) < 3*time.Minute; i++ {
		daemons["busy"].strain(i)
		for job, alerts := range p.firing() {
			for _, alert := range alerts {
				delete(missing, job+" "+alert)
			}
		}
	}
	if len(missing) > 0 {
		t.Errorf("these alerts do not hold: %v", slices.Sorted(maps.Keys(missing)))
	}
	t.Logf("the alerts held within %v", time.Since(began).Round(time.Millisecond))
}
