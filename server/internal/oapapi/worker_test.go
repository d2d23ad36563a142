package oapapi_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/oap"
	"github.com/mailboxmq/mailbox/remotebox"
	"github.com/mailboxmq/mailbox/server/internal/oapapi"
)

// TestWorkersAreListedWithTheirNames is CON-2 over OAP/1: clients tell their names, and what they hold is
// listed.
func TestWorkersAreListedWithTheirNames(t *testing.T) {
	inBubble(t, oapapi.Options{}, func(t *testing.T, d *daemon) {
		var held driver.Receipt
		receive := func(worker string, wait time.Duration) *remotebox.Backend {
			client := remotebox.New([]string{"pipe"}, d.token, &remotebox.Options{Dial: d.pipe, Worker: worker})
			q, err := client.OpenQueue(t.Context(), "jobs")
			if err != nil {
				t.Fatal(err)
			}
			if wait == 0 {
				_, err = q.Send(t.Context(), []driver.Outgoing{{Body: []byte("x")}})
			}
			if err != nil {
				t.Fatal(err)
			}
			if wait > 0 {
				go func() {
					_, _ = q.Receive(t.Context(), driver.ReceiveRequest{Max: 1, Visibility: time.Hour, Wait: wait})
				}()
				synctest.Wait()
				return client
			}
			got, err := q.Receive(t.Context(), driver.ReceiveRequest{Max: 1, Visibility: time.Hour})
			if err != nil || len(got) != 1 {
				t.Fatalf("received %d, %v", len(got), err)
			}
			held = got[0].Receipt
			return client
		}
		d.make(t, "jobs")
		host, _ := os.Hostname()
		named, standard := receive(`<b>"worker"</b>`, 0), receive("", time.Hour)
		defer named.Close()
		reports, err := named.OpenQueue(t.Context(), "jobs")
		if err != nil {
			t.Fatal(err)
		}
		r := dialRaw(t, d)
		r.start()
		known := uint64(oap.PlainTraits)
		ask := func(queue string) []oap.Worker {
			r.send(requestHeader(oap.OpWorkers, 9), nil, oap.AppendName(nil, queue))
			f := r.mustNext()
			workers, err := oap.ParseWorkers(f.Payload, known)
			if err != nil || f.Code != oap.StatusOK {
				t.Fatalf("status %d, %v", f.Code, err)
			}
			return workers
		}
		workers := ask("jobs")
		if len(workers) != 2 {
			t.Fatalf("%+v", workers)
		}
		first, second := workers[0], workers[1]
		if first.Name != `<b>"worker"</b>` || first.Protocol != "oap" || first.InFlight != 1 || len(first.Held) != 1 || first.Held[0].Until.Sub(first.Held[0].TakenAt) != time.Hour {
			t.Errorf("%+v", first)
		}
		if !strings.HasSuffix(second.Name, fmt.Sprintf("@%s:%d", host, os.Getpid())) || second.Waiting != 1 || second.InFlight != 0 {
			t.Errorf("%+v", second)
		}
		extensions := []driver.Extension{
			{Receipt: held, Visibility: time.Hour, Progress: driver.NewProgress(0.4, "page 4 of 10")}, {Receipt: held, Visibility: time.Hour, Progress: &driver.Progress{Text: strings.Repeat("x", 201)}},
		}
		granted, err := reports.Extend(t.Context(), extensions)
		if driver.At(err, 0) != nil || !errors.Is(driver.At(err, 1), driver.ErrInvalid) || granted[0] != time.Hour {
			t.Errorf("granted %v, %v", granted, err)
		}
		if first = ask("jobs")[0]; first.Held[0].Progress != nil {
			t.Errorf("a client of before sees %+v", first)
		}
		r.send(requestHeader(oap.OpKnow, 8), nil, oap.AppendKnown(nil, oap.KnownTraits))
		known = oap.KnownTraits
		if f := r.mustNext(); f.Code != oap.StatusOK {
			t.Fatalf("status %d", f.Code)
		}
		if first = ask("jobs")[0]; first.Held[0].Progress == nil || first.Held[0].Progress.String() != "40 %: page 4 of 10" || time.Since(first.Held[0].ReportedAt) != 0 {
			t.Errorf("%+v", first.Held)
		}
		if all := ask(""); len(all) != 2 || all[0].InFlight != 1 || all[0].Held != nil {
			t.Errorf("%+v", all)
		}
		// A worker whose connection ends does not wait any more.
		if err := standard.Close(); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if again := ask("jobs"); len(again) != 2 || again[1].Waiting != 0 {
			t.Errorf("%+v", again)
		}
		for _, bad := range []string{"a\x1b[2J", strings.Repeat("x", 129), "\xff"} {
			r.send(requestHeader(oap.OpName, 10), nil, oap.AppendName(nil, bad))
			if f := r.mustNext(); f.Code != oap.StatusInvalid {
				t.Errorf("the name %q: status %d", bad, f.Code)
			}
			_, err := remotebox.New([]string{"pipe"}, d.token, &remotebox.Options{Dial: d.pipe, Worker: bad}).OpenQueue(t.Context(), "jobs")
			if !errors.Is(err, driver.ErrInvalid) {
				t.Errorf("a client with the name %q: %v", bad, err)
			}
		}
	})
}
