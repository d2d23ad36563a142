package cli_test

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/server"
)

// bench runs mailbox bench for longer and longer until it has measured something: a busy machine
// may do nothing for a while.
func (d *daemon) bench(t *testing.T, measured func(text string) bool, args ...string) {
	t.Helper()
	for length := 200 * time.Millisecond; ; length *= 5 {
		text := d.must(t, append([]string{"bench", "--duration", length.String()}, args...)...)
		if measured(text) {
			return
		}
		if length > 10*time.Second {
			t.Errorf("bench %v printed %s", args, text)
			return
		}
	}
}

func TestBenchMeasuresAndCleansUp(t *testing.T) {
	for _, config := range []func() server.Config{inMemory, onDisk} {
		d := start(t, config())
		for surface, flag := range map[string]string{"oap": "--http=false", "http": "--http"} {
			d.bench(t, func(text string) bool {
				var v struct {
					Surface string  `json:"surface"`
					Sent    int     `json:"sent"`
					Acked   int     `json:"acked"`
					P50     float64 `json:"latency_p50_ms"`
					P99     float64 `json:"latency_p99_ms"`
				}
				err := json.Unmarshal([]byte(text), &v)
				return err == nil && v.Surface == surface && v.Sent > 0 && v.Acked > 0 && v.P50 > 0 && v.P99 >= v.P50
			}, "--producers", "2", "--consumers", "2", "--batch", "4", flag, "--json")
		}
		d.bench(t, func(text string) bool { return strings.Contains(text, "latency p50") }, "--rate", "100")
		d.bench(t, func(text string) bool {
			return !strings.Contains(text, "latency p50") && strings.Contains(text, "time in the queue p50")
		})
		if queues := d.must(t, "queues", "ls"); queues != "" {
			t.Errorf("it left queues: %s", queues)
		}
	}
}

func TestWatchRunsUntilInterrupted(t *testing.T) {
	d := start(t, inMemory())
	d.must(t, "send", "q", "x")
	for _, c := range []struct{ flag, before, after string }{
		{"--json", `"queue":"q","ready":1`, `"queue":"q","ready":2`},
		{"--json=false", "q          1", "q          2"},
	} {
		d.must(t, "queues", "purge", "q", "--yes")
		d.must(t, "send", "q", "x")
		w := begin(t, d.environ(), strings.NewReader(""), "stats", "--watch", "--interval", "100ms", c.flag)
		w.stdout.await(t, c.before)
		d.must(t, "send", "q", "y")
		w.stdout.await(t, c.after)
		w.interrupt()
		r := w.wait()
		r.wantCode(t, 0)
	}
}

func TestReceiptSettlesDeliveryOfAnotherToken(t *testing.T) {
	d := start(t, inMemory())
	file := filepath.Join(t.TempDir(), "worker.token")
	d.must(t, "cap", "mint", "--op", "recv,ack,nack,extend", "--queue", "q", "--expires", "1h", "--out", file)
	id := d.must(t, "send", "q", "x")
	var delivery struct{ Receipt string }
	if err := json.Unmarshal([]byte(d.must(t, "recv", "q", "--json", "--token-file", file)), &delivery); err != nil {
		t.Fatal(err)
	}
	r := d.mailbox(t, "ack", id)
	r.wantCode(t, 5, "holds no delivery")
	d.mailbox(t, "ack", id, "--queue", "q", "--receipt", delivery.Receipt[:30]).wantCode(t, 5, "--receipt is malformed")
	if got := d.must(t, "ack", id, "--queue", "q", "--receipt", delivery.Receipt); got != id+"\tacked" {
		t.Errorf("got %q", got)
	}
}

func TestSettlingContinuesAfterFailure(t *testing.T) {
	d := start(t, inMemory())
	d.must(t, "send", "q", "x")
	id, _, _ := strings.Cut(d.must(t, "recv", "q"), "\t")
	r := d.mailbox(t, "ack", "01ARZ3NDEKTSV4RRFFQ69G5FAV", id)
	r.wantCode(t, 5, "01ARZ3NDEKTSV4RRFFQ69G5FAV")
	if r.stdout != id+"\tacked\n" {
		t.Errorf("the second was not acked: %+v", r)
	}
}

func TestRotationEndsOldTokensOnlyWithRetire(t *testing.T) {
	d := start(t, inMemory())
	file := filepath.Join(t.TempDir(), "old.token")
	d.must(t, "cap", "mint", "--op", "*", "--queue", "*", "--expires", "1h", "--out", file)
	reload := func() {
		t.Helper()
		if err := d.Reload(d.Config()); err != nil {
			t.Fatal(err)
		}
	}
	d.must(t, "keys", "rotate")
	reload()
	d.must(t, "queues", "ls", "--token-file", file)
	if keys := d.must(t, "keys", "ls"); strings.Count(keys, "current") != 1 || strings.Count(keys, "accepted") != 1 {
		t.Errorf("the keys are\n%s", keys)
	}
	var rotated struct {
		Keys []struct {
			Current   bool
			RetiredAt string `json:"retired_at"`
		}
		Operator string `json:"operator_token_file"`
	}
	if err := json.Unmarshal([]byte(d.must(t, "keys", "rotate", "--retire", "--yes", "--json")), &rotated); err != nil || len(rotated.Keys) != 3 || rotated.Keys[2].RetiredAt == "" || rotated.Operator != d.tokenFile() {
		t.Fatalf("rotated %+v, %v", rotated, err)
	}
	reload()
	r := d.mailbox(t, "queues", "ls", "--token-file", file)
	r.wantCode(t, 4, "retired")
	d.must(t, "queues", "ls") // with the new token of the operator
	r = d.mailbox(t, "keys", "rotate", "--pid", "-5")
	r.wantCode(t, 2, "--pid")
}

func TestDamagedKeysAreNotReplaced(t *testing.T) {
	d := start(t, inMemory())
	r := d.mailbox(t, "keys", "rotate", "--keys", d.tokenFile())
	r.wantCode(t, 1, "cannot be read")
}

func TestNarrowingNeedsNoDaemon(t *testing.T) {
	d := start(t, inMemory())
	environ := d.environ()
	d.stop()
	narrowed := mailbox(t, environ, "cap", "attenuate", "--op", "send", "--queue", "orders", "--expires", "1h", "--not-before", "2026-01-01T00:00:00Z",
		"--byte-rate", "1000", "--net", "10.0.0.0/8", "--peer", "spiffe://example.org/w", "--aud", "mailboxd", "--receipt", "r", "--slot", "s", "--caveat", "mbx:tenant=acme")
	narrowed.wantCode(t, 0)
	inspected := begin(t, environ, strings.NewReader(narrowed.stdout), "cap", "inspect", "-").wait()
	inspected.wantCode(t, 0)
	for _, words := range []string{"may send", "on queues orders", "10.0.0.0/8", "spiffe://example.org/w", "mailboxd", "acme"} {
		if !strings.Contains(inspected.stdout, words) {
			t.Errorf("it does not say %q:\n%s", words, inspected.stdout)
		}
	}
	if strings.Contains(inspected.stdout, strings.TrimSpace(narrowed.stdout)) {
		t.Error("inspecting printed the token")
	}
}

func TestCompletionListsQueues(t *testing.T) {
	d := start(t, inMemory())
	d.must(t, "send", "orders", "x")
	if got := d.must(t, "__complete", "recv", ""); !strings.HasPrefix(got, "orders\n") {
		t.Errorf("completed %q", got)
	}
	environ := d.environ()
	d.stop()
	if r := mailbox(t, environ, "__complete", "recv", ""); r.code != 0 || strings.Contains(r.stdout, "orders") {
		t.Errorf("without a daemon: %+v", r)
	}
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if r := mailbox(t, nil, "completion", shell); r.code != 0 || !strings.Contains(r.stdout, "mailbox") {
			t.Errorf("completion %s: exit code %d, %d bytes", shell, r.code, len(r.stdout))
		}
	}
}

func TestEveryCommandHasHelpAndJSON(t *testing.T) {
	for _, command := range []string{
		"send", "recv", "ack", "nack", "extend", "peek", "trace", "message", "message remove", "message ready", "message due", "schedules", "schedules ls", "schedules add", "schedules show", "schedules pause", "schedules resume", "schedules run", "schedules rm", "requests", "requests ls", "requests show", "requests cancel", "queues", "queues ls", "queues create", "queues configure", "queues show", "queues delete",
		"queues purge", "stats", "pause", "resume", "throttle", "dlq", "dlq ls", "dlq causes", "dlq show", "dlq redrive", "dlq discard", "jobs", "jobs ls", "jobs show", "jobs stop", "cap", "cap mint", "cap narrow", "cap inspect",
		"cap token", "cap revoke", "keys", "keys ls", "keys rotate", "pg", "pg migrate", "pg doctor", "doctor", "health", "bench", "version", "completion",
	} {
		r := mailbox(t, nil, append(strings.Fields(command), "--help")...)
		if r.code != 0 || !strings.Contains(r.stdout, "mailbox "+command) || !strings.Contains(r.stdout, "--json") {
			t.Errorf("%s: exit code %d, %s", command, r.code, r.stdout)
		}
	}
	if r := mailbox(t, nil); r.code != 0 || !strings.Contains(r.stdout, "dead letters") {
		t.Errorf("mailbox alone: %+v", r)
	}
	if r := mailbox(t, nil, "--version"); r.code != 0 || !strings.Contains(r.stdout, "v0.0.0-test") {
		t.Errorf("--version: %+v", r)
	}
	var v map[string]string
	if r := mailbox(t, nil, "version", "--json"); json.Unmarshal([]byte(r.stdout), &v) != nil || v["version"] != "v0.0.0-test" || v["go"] == "" {
		t.Errorf("version: %+v", r)
	}
	if r := mailbox(t, nil, "version"); !strings.HasPrefix(r.stdout, "mailbox v0.0.0-test (go") {
		t.Errorf("version: %+v", r)
	}
}

func TestUsedUpRateNamesTokenOnEverySurface(t *testing.T) {
	d := start(t, inMemory())
	file := filepath.Join(t.TempDir(), "slow.token")
	d.must(t, "cap", "mint", "--op", "send", "--queue", "jobs", "--expires", "1h", "--rate", "1", "--out", file)
	for _, surface := range surfaces {
		environ := d.environ(append(surface.more, "MAILBOX_TOKEN_FILE="+file)...)
		var r result
		for range 5 {
			if r = mailbox(t, environ, "send", "jobs", "x"); r.code != 0 {
				break
			}
		}
		r.wantCode(t, 6, "the token's quota is used up: 1 message per second", "ask for a token with a higher rate")
	}
}
