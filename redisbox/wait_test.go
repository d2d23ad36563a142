package redisbox

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/redistest"
)

func TestDurabilityFollowsServerSettings(t *testing.T) {
	for name, test := range map[string]struct {
		server []redistest.Option
		want   driver.Durability
		risk   string // what Strict refuses and the log warns of
	}{
		"synced at once":  {[]redistest.Option{redistest.AppendOnly(redistest.FsyncAlways)}, driver.DurabilityDisk, ""},
		"synced at times": {[]redistest.Option{redistest.AppendOnly(redistest.FsyncEverySec)}, driver.DurabilityProcess, ""},
		"snapshots":       {[]redistest.Option{redistest.Config("save", "3600 1")}, driver.DurabilityProcess, ""},
		"nothing saved":   {nil, driver.DurabilityNone, "no persistence"},
		"evicting": {
			[]redistest.Option{redistest.AppendOnly(redistest.FsyncAlways), redistest.Config("maxmemory-policy", "allkeys-lru")},
			driver.DurabilityNone, "maxmemory-policy",
		},
	} {
		t.Run(name, func(t *testing.T) {
			client := connect(t, redistest.Standalone(t, test.server...).ClientOption())
			var log bytes.Buffer
			options := Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}
			if got := openQueue(t, open(t, client, &options)).Traits().Durability; got != test.want {
				t.Errorf("got durability %q, want %q", got, test.want)
			}
			if warned := strings.Contains(log.String(), test.risk) && log.Len() > 0; warned != (test.risk != "") {
				t.Errorf("the log says %q, want a warning about %q", log.String(), test.risk)
			}
			options.Strict = true
			_, err := Open(t.Context(), client, &options)
			if test.risk == "" {
				if err != nil {
					t.Errorf("strict: %v", err)
				}
				return
			}
			wantCode(t, err, driver.ErrUnsupported)
			if !strings.Contains(err.Error(), test.risk) {
				t.Errorf("strict: got %v, want it to name %q", err, test.risk)
			}
		})
	}
}

func TestWithoutReplicasNothingIsConfirmed(t *testing.T) {
	t.Parallel()
	group := redistest.Sentinel(t, redistest.Replicas(1))
	ctx := t.Context()
	primary, err := group.Primary(ctx)
	if err != nil {
		t.Fatal(err)
	}
	b := open(t, connect(t, group.ClientOption()), &Options{Replicas: 1, ReplicaTimeout: 3 * time.Second})
	q := openQueue(t, b)
	if got := q.Traits().Durability; got != driver.DurabilityReplicated {
		t.Errorf("got durability %q", got)
	}
	send(t, q, "a", "b")
	d := receive(t, q, 1, hold)[0]
	b.options.ReplicaTimeout = 100 * time.Millisecond // too short for the replicas
	for _, server := range group.Servers() {
		if server != primary {
			server.Stop()
			defer server.Continue()
		}
	}
	_, err = q.Send(ctx, []driver.Outgoing{{Body: []byte("c")}})
	wantCode(t, err, driver.ErrUnavailable)
	wantCode(t, q.Ack(ctx, []driver.Receipt{d.Receipt}), driver.ErrUnavailable)
	receive(t, q, 1, hold) // receiving goes on
}

// TestOpenWaitsForPrimary: while one primary replaces another there is none.
func TestOpenWaitsForPrimary(t *testing.T) {
	t.Parallel()
	primary, replica := redistest.Standalone(t), redistest.Standalone(t)
	become := func(what ...string) {
		if _, err := replica.Do(t.Context(), append([]string{"REPLICAOF"}, what...)...); err != nil {
			t.Error(err)
		}
	}
	host, port, _ := strings.Cut(primary.Addr(), ":")
	become(host, port)
	client := connect(t, replica.ClientOption())
	_, err := Open(t.Context(), client, &Options{RetryFor: 300 * time.Millisecond})
	wantCode(t, err, driver.ErrUnavailable)
	promotion := time.AfterFunc(300*time.Millisecond, func() { become("NO", "ONE") })
	defer promotion.Stop()
	send(t, openQueue(t, open(t, client, nil)), "a")
}

func TestServerWithoutMemoryRefusesMessages(t *testing.T) {
	server := redistest.Standalone(t)
	q := openQueue(t, open(t, connect(t, server.ClientOption()), nil))
	send(t, q, "a", "b", "c")
	if _, err := server.Do(t.Context(), "CONFIG", "SET", "maxmemory", "1"); err != nil {
		t.Fatal(err)
	}
	_, err := q.Send(t.Context(), []driver.Outgoing{{Body: []byte("d")}})
	wantCode(t, err, driver.ErrFull)
	if driver.RetryAfter(err) <= 0 {
		t.Error("there is no hint when to try again")
	}
	wantStats(t, q, driver.Stats{Ready: 3})
	got := receive(t, q, 3, hold)
	if err := q.Ack(t.Context(), []driver.Receipt{got[0].Receipt}); err != nil {
		t.Fatal(err)
	}
	if err := q.Nack(t.Context(), []driver.Nack{{Receipt: got[1].Receipt}}); err != nil {
		t.Fatal(err)
	}
	if err := q.DeadLetter(t.Context(), []driver.DeadLetterRequest{{Receipt: got[2].Receipt, Reason: driver.ReasonFatal}}); err != nil {
		t.Fatal(err)
	}
	wantStats(t, q, driver.Stats{Ready: 1, Dead: 1})
	// Of a batch that sends and settles, the settles succeed.
	settling := newSettleOp(t.Context(), q.shards[0])
	settling.add(0, "a", receive(t, q, 1, hold)[0].Receipt, "")
	part := newSendOp(t.Context(), q.shards[0])
	part.add(0, q.shards[0].newID(), &driver.Outgoing{Body: []byte("e")}, extra{})
	q.shards[0].perform(t.Context(), &session{}, []operation{settling, part})
	if settling.err != nil || settling.codes != "" {
		t.Errorf("ack: got codes %q, error %v", settling.codes, settling.err)
	}
	wantCode(t, part.err, driver.ErrFull)
	wantStats(t, q, driver.Stats{Dead: 1})
}
