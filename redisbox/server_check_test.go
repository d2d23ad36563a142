package redisbox

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/redistest"
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
