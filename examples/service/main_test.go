package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/diskbox"
	"github.com/mailboxmq/mailbox/mailboxprom"
	"github.com/mailboxmq/mailbox/worker"
)

// childVariable makes this test binary run the service.
const childVariable = "MAILBOX_SERVICE_TEST_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childVariable); dir != "" {
		err := run(context.Background(), settings{dir: dir, orders: 200}, slog.New(slog.NewTextHandler(os.Stdout, nil)))
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	m.Run()
}

func open(t *testing.T, dir string) (*diskbox.Backend, *mailbox.Mailbox[Order]) {
	t.Helper()
	disk, err := diskbox.Open(t.Context(), dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	orders, err := mailbox.Open[Order](t.Context(), disk, "orders", nil)
	if err != nil {
		t.Fatal(err)
	}
	return disk, orders
}

func TestServiceServesWhatItCanAndKeepsTheRest(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		disk, orders := open(t, dir)
		defer disk.Close()
		for _, drink := range []string{"tea", "matcha", "mud", "cocoa"} {
			if _, err := orders.Send(t.Context(), Order{Drink: drink, Table: 7}); err != nil {
				t.Fatal(err)
			}
		}
		var log strings.Builder
		registry := prometheus.NewRegistry()
		metrics, err := mailboxprom.New(registry, nil)
		if err != nil {
			t.Fatal(err)
		}
		members := newService(orders, metrics, slog.New(slog.NewTextHandler(&log, nil)))
		group := worker.NewGroup(&worker.GroupOptions{NoSignals: true}, members...)
		ended := make(chan error, 1)
		go func() { ended <- group.Run(t.Context()) }()
		<-time.After(10 * time.Minute)
		synctest.Wait()
		if stats, err := orders.Stats(t.Context()); err != nil || stats != (mailbox.Stats{Dead: 1}) {
			t.Errorf("there are %+v, %v; want one dead letter", stats, err)
		}
		ready := httptest.NewRecorder()
		group.Health().ServeHTTP(ready, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/readyz", nil))
		var report worker.HealthReport
		if err := json.Unmarshal(ready.Body.Bytes(), &report); err != nil || ready.Code != http.StatusOK || len(report.Members) != 2 || report.DeadLetters[0].Depth != 1 {
			t.Errorf("readiness is %d %s, %v", ready.Code, ready.Body, err)
		}
		group.Stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if !strings.Contains(log.String(), "please talk to table 7") {
			t.Errorf("no alert: %s", log.String())
		}
		measured := `
# HELP mailbox_worker_settled_total What became of the messages of a loop.
# TYPE mailbox_worker_settled_total counter
mailbox_worker_settled_total{loop="orders",result="acked"} 3
mailbox_worker_settled_total{loop="orders",result="dead"} 1
mailbox_worker_settled_total{loop="orders",result="nacked"} 1
`
		if err := testutil.GatherAndCompare(registry, strings.NewReader(measured), "mailbox_worker_settled_total"); err != nil {
			t.Error(err)
		}
	})
}

// Metrics are served as long as the group runs.
func TestServiceServesMetrics(t *testing.T) {
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := listener.Addr().String() // free a moment ago
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		numbers := func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "numbers") }
		ended <- (&page{addr, http.HandlerFunc(numbers)}).Run(ctx)
	}()
	for got := ""; got != "numbers"; {
		select {
		case err := <-ended:
			t.Fatal(err)
		case <-t.Context().Done():
			t.Fatal("nothing was served")
		default:
		}
		if answer, err := http.Get("http://" + addr + "/metrics"); err == nil {
			body, _ := io.ReadAll(answer.Body)
			_ = answer.Body.Close()
			got = string(body)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// A deploy in the middle of the work: SIGTERM, exit code 0, nothing in flight.
func TestServiceStopsInOrder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cafe")
	service := exec.CommandContext(t.Context(), os.Args[0])
	service.Env = append(os.Environ(), childVariable+"="+dir)
	out, err := service.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := service.Start(); err != nil {
		t.Fatal(err)
	}
	log := bufio.NewScanner(out)
	for log.Scan() && !strings.Contains(log.Text(), "result=acked") { // until it is at work
	}
	go func() { _, _ = io.Copy(io.Discard, out) }()
	if err := service.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := service.Wait(); err != nil {
		t.Fatalf("the service ended with %v", err)
	}
	disk, orders := open(t, dir)
	defer disk.Close()
	stats, err := orders.Stats(t.Context())
	if err != nil || stats.InFlight != 0 || stats.Ready == 0 {
		t.Errorf("there are %+v, %v; want none in flight, and some to be served yet", stats, err)
	}
}
