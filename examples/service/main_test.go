package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
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

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/diskbox"
	"github.com/mailboxmq/mailbox/worker"
)

// childVariable makes this test binary the service.
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
		group := newService(orders, &worker.GroupOptions{NoSignals: true, Logger: slog.New(slog.NewTextHandler(&log, nil))})
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
		if !strings.Contains(log.String(), "somebody should talk to table 7") {
			t.Errorf("nobody was alerted: %s", log.String())
		}
	})
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
