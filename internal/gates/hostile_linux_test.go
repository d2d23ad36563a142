package gates_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/internal/testing/proctest"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
)

const (
	// hostileRSS bounds the daemon's memory under attack.
	hostileRSS = 512 << 20
	// hostileSlowdown is how much slower other tenants may be beside the attacker than
	// beside a process that keeps as many threads busy.
	hostileSlowdown = 5
)

// TestHostileTenantDoesNotHarmOthers tests OPS-4 as a whole: one tenant does
// everything that its token allows, over every protocol at once, against a daemon with
// its default settings on disk. Another tenant sends, receives and acks without an
// error and not much slower than on a busy machine, and the daemon's
// memory stays small. Latency is checked at length only (see package volume), because ten
// seconds on a machine that is also busy otherwise prove nothing about it.
func TestHostileTenantDoesNotHarmOthers(t *testing.T) {
	volume.Measures(t)
	length := volume.Duration(t, 10*time.Second, 5*time.Minute)

	quiet := start(t, append(onDisk, "--log-level=info")...)
	other := startBeside(t, quiet, "burner", "")
	beforehand := workBeside(t, quiet, length/2, nil)
	other()
	quiet.Stop(t)

	d := start(t, append(onDisk, "--log-level=info")...)
	stop := startBeside(t, d, "attacker", mintTenant(t, d, "hostile"))
	most := 0
	during := workBeside(t, d, length, func() { most = max(most, residentBytes(t, d.PID())) })
	stop()

	t.Logf("resident memory: %d MiB at most", most>>20)
	if most > hostileRSS {
		t.Errorf("the daemon used %d MiB", most>>20)
	}
	for _, protocol := range []string{"HTTP", "gRPC", "OAP"} {
		for _, operation := range []string{"send", "receive", "ack"} {
			what := protocol + " " + operation
			was, is := percentile(beforehand[what], 0.99), percentile(during[what], 0.99)
			t.Logf("%-12s beside a busy process: %6d, %s", what, len(beforehand[what]), figures(beforehand[what]))
			t.Logf("%-12s under attack:          %6d, %s", what, len(during[what]), figures(during[what]))
			if volume.AtLength() && is > hostileSlowdown*was {
				t.Errorf("%s: p99 is %v under attack and %v beside a busy process", what, round(is), round(was))
			}
		}
	}
}

// mintTenant returns a token for everything in a tenant's namespace.
func mintTenant(t testing.TB, d *daemon, tenant string) string {
	t.Helper()
	var minted struct{ Token string }
	if err := openHTTP(t, d.http, d.token).post(t.Context(), "/v1/caps/mint", object{"tenant": tenant, "caveats": []string{}}, &minted); err != nil {
		t.Fatal(err)
	}
	return minted.Token
}

// startBeside runs another process until the returned function is called.
func startBeside(t testing.TB, d *daemon, role, token string) (end func()) {
	t.Helper()
	command := exec.Command(os.Args[0], "-test.run=^TestHostileProcess$", "-test.v")
	command.Env = append(environment(), attackerRole+"="+role, attackerHTTP+"="+d.http, attackerOAP+"="+d.oap, attackerAt+"="+token)
	input, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	p := proctest.Start(t, command)
	return func() {
		_ = input.Close()
		select {
		case <-p.Ended():
		case <-time.After(20 * time.Second):
			p.Kill()
		}
		for line := range strings.Lines(p.Stdout.String()) {
			if strings.HasPrefix(line, "attack ") || strings.Contains(line, "FAIL") {
				t.Log(strings.TrimSpace(line))
			}
		}
	}
}

// workBeside runs a tenant over each protocol for a while, and returns how long its
// operations took. No operation may fail. It calls sample repeatedly.
func workBeside(t testing.TB, d *daemon, length time.Duration, sample func()) map[string][]time.Duration {
	t.Helper()
	took := make(map[string][]time.Duration)
	var mu sync.Mutex
	var all sync.WaitGroup
	token := mintTenant(t, d, "victim")
	end := time.Now().Add(length)
	for _, s := range surfaces {
		client := s.open(t, d, token)
		all.Go(func() {
			own := steady(t, client, s.name, end)
			mu.Lock()
			defer mu.Unlock()
			for what, times := range own {
				took[what] = slices.Concat(took[what], times)
			}
		})
	}
	for sample != nil && time.Now().Before(end) {
		sample()
		<-time.After(100 * time.Millisecond)
	}
	all.Wait()
	return took
}

// steady sends, receives and acks one message after another.
func steady(t testing.TB, s surface, name string, end time.Time) map[string][]time.Duration {
	took := make(map[string][]time.Duration)
	queue := "victim-" + strings.ToLower(name)
	timed := func(operation string, do func(ctx context.Context) error) bool {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		began := time.Now()
		if err := do(ctx); err != nil {
			t.Errorf("%s %s: %v", name, operation, err)
			return false
		}
		took[name+" "+operation] = append(took[name+" "+operation], time.Since(began))
		return true
	}
	failures := 0
	for i := 0; time.Now().Before(end) && failures < 3; i++ {
		var got []delivery
		ok := timed("send", func(ctx context.Context) error {
			_, _, err := s.send(ctx, queue, fmt.Sprint(i), []byte("a message of a tenant who means well"))
			return err
		}) && timed("receive", func(ctx context.Context) (err error) {
			got, err = s.receive(ctx, queue, wanted{most: 1, visibility: time.Minute, wait: 10 * time.Second})
			if err == nil && len(got) != 1 {
				err = fmt.Errorf("got %d messages", len(got))
			}
			return err
		}) && timed("ack", func(ctx context.Context) error { return s.ack(ctx, queue, got[0]) })
		if !ok {
			failures++
		}
		<-time.After(2 * time.Millisecond) // a moderate load
	}
	return took
}
