package redisbox

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/redistest"
	"github.com/mailboxmq/mailbox/redisbox/internal/shard"
)

// testdata/schema1 has a database that was written with schema 1, and the scripts of that
// version that decide whether a shard is usable. It has three queues:
//
//	orders  MaxMessages 7, MaxDeliveries 3, MaxDead 4: o1 in flight for an hour, o2
//	        nacked for an hour, o3 dead, o4 ready, o5 delayed for 15 minutes
//	spread  two shards, MaxDeliveries 4: s1, s2, s3 and s4 ready
//	ledger  strict groups, MaxDeliveries 9: a1 ready again, a2 in flight for an hour,
//	        a3 ready; b1 nacked for 30 minutes, b2 ready; c1 delayed for 15 minutes,
//	        c2 ready; e1 ready, without a group

// restoreSchema1 starts a server with that database, with the clock at its time.
func restoreSchema1(t *testing.T) (*redistest.Server, rueidis.Client) {
	t.Helper()
	var stored struct {
		Written time.Time
		Keys    []struct {
			Key, Type string
			Fields    [][]byte
		}
	}
	text, err := os.ReadFile("testdata/schema1/database.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &stored); err != nil {
		t.Fatal(err)
	}
	server := redistest.Standalone(t, redistest.ClockSkew(time.Until(stored.Written)))
	client := connect(t, server.ClientOption())
	for _, key := range stored.Keys {
		command := []string{map[string]string{"hash": "HSET", "list": "RPUSH", "set": "SADD", "zset": "ZADD"}[key.Type], key.Key}
		for i, field := range key.Fields {
			if key.Type == "zset" { // members come before their scores
				field = key.Fields[i^1]
			}
			command = append(command, string(field))
		}
		if err := client.Do(t.Context(), client.B().Arbitrary(command...).Build()).Error(); err != nil {
			t.Fatal(err)
		}
	}
	return server, client
}

// drain receives and acks all ready messages, and returns the bodies.
func drain(t *testing.T, q driver.Queue) string {
	t.Helper()
	var bodies []string
	for {
		got, err := q.Receive(t.Context(), driver.ReceiveRequest{Max: 10, Visibility: hold})
		if err != nil {
			t.Fatal(err)
		}
		if len(got) == 0 {
			return strings.Join(bodies, " ")
		}
		for _, d := range got {
			bodies = append(bodies, string(d.Body))
			if err := q.Ack(t.Context(), []driver.Receipt{d.Receipt}); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// drainStep is the messages that are ready some time after the step before.
type drainStep struct {
	after time.Duration
	want  string
}

func drainAsTimePasses(t *testing.T, server *redistest.Server, q driver.Queue, steps []drainStep) {
	t.Helper()
	for _, step := range steps {
		if err := server.SetClockSkew(server.ClockSkew() + step.after); err != nil {
			t.Fatal(err)
		}
		if got := drain(t, q); got != step.want {
			t.Errorf("%v later: got %q, want %q", step.after, got, step.want)
		}
	}
}

func TestSchema1OpensKeepsLimitsAndDrains(t *testing.T) {
	t.Parallel()
	server, client := restoreSchema1(t)
	b := open(t, client, nil)
	if config, err := b.QueueConfig(t.Context(), "orders"); err != nil || config.MaxDeliveries != 3 || config.MaxMessages != 7 {
		t.Errorf("config before the queue is opened: got %+v, error %v", config, err)
	}
	orders, spread := openNamed(t, b, "orders"), openNamed(t, b, "spread")
	wantStats(t, orders, driver.Stats{Ready: 1, Delayed: 2, InFlight: 1, Dead: 1})
	send(t, orders, "o6", "o7", "o8")
	_, err := orders.Send(t.Context(), []driver.Outgoing{{Body: []byte("o9")}})
	wantCode(t, err, driver.ErrFull)
	drainAsTimePasses(t, server, orders, []drainStep{
		{0, "o4 o6 o7 o8"}, {20 * time.Minute, "o5"}, {time.Hour, "o1 o2"},
	})
	wantStats(t, orders, driver.Stats{Dead: 1})
	wantStats(t, spread, driver.Stats{Ready: 4})
	drain(t, spread)
	wantStats(t, spread, driver.Stats{})
}

// TestSchema1StrictGroupsDrainByNewRule: ORD-4 holds for old messages too.
func TestSchema1StrictGroupsDrainByNewRule(t *testing.T) {
	t.Parallel()
	server, client := restoreSchema1(t)
	b := open(t, client, nil)
	ledger := openNamed(t, b, "ledger")
	wantStats(t, ledger, driver.Stats{Ready: 5, Delayed: 2, InFlight: 1})
	if config, err := b.QueueConfig(t.Context(), "ledger"); err != nil || !config.StrictGroups || config.MaxDeliveries != 9 {
		t.Errorf("got %+v, error %v", config, err)
	}
	drainAsTimePasses(t, server, ledger, []drainStep{
		{0, "a1 c2 e1"}, {20 * time.Minute, "c1"}, {15 * time.Minute, "b1 b2"}, {time.Hour, "a2 a3"},
	})
	wantStats(t, ledger, driver.Stats{})
	for _, name := range []string{"groups", "out", "eligible", "turns", "served"} {
		n, err := client.Do(t.Context(), client.B().Exists().Key(keyOf(ledger, name)).Build()).AsInt64()
		if err != nil || n != 0 {
			t.Errorf("%s: there is something left, error %v", name, err)
		}
	}
}

// TestSchema1ScriptsFailOnMigratedQueue: scripts of old clients fail on a migrated queue,
// whatever their arguments, and change nothing.
func TestSchema1ScriptsFailOnMigratedQueue(t *testing.T) {
	t.Parallel()
	_, client := restoreSchema1(t)
	b := open(t, client, nil)
	for _, name := range []string{"orders", "created"} {
		q := openNamed(t, b, name)
		before, err := q.Stats(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		keys := shard.Keys("", name, 0)
		for _, what := range []string{"l", "o", "c", "h", "a"} {
			wantScriptError(t, client, "open", keys, what, q.Incarnation, "9", "1", shard.PackConfig(driver.Config{}, 1, 0), "{}")
		}
		wantScriptError(t, client, "head", keys[:19], q.Incarnation, "0", "0", "", "0")
		wantStats(t, q, before)
		send(t, q, "more")
	}
}

// wantScriptError runs a script of schema 1 with its keys.
func wantScriptError(t *testing.T, client rueidis.Client, name string, keys []string, args ...string) {
	t.Helper()
	text, err := os.ReadFile("testdata/schema1/" + name + ".lua")
	if err != nil {
		t.Fatal(err)
	}
	command := client.B().Eval().Script(string(text)).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build()
	err = client.Do(t.Context(), command).Error()
	if _, ok := rueidis.IsRedisErr(err); !ok || !strings.Contains(err.Error(), "data string too short") {
		t.Errorf("%s %q: got error %v, want one about a data string", name, args[0], err)
	}
}

func TestLaterSchemaIsRefused(t *testing.T) {
	t.Parallel()
	client := connect(t, redistest.SharedServer(t).ClientOption())
	b := open(t, client, &Options{Prefix: redistest.Prefix(t)})
	q := openQueue(t, b)
	send(t, q, "a")
	setSchema := func(number string) {
		t.Helper()
		meta := client.B().Hset().Key(keyOf(q, "meta")).FieldValue().FieldValue("schema", number).Build()
		if err := client.Do(t.Context(), meta).Error(); err != nil {
			t.Fatal(err)
		}
	}
	setSchema("10")
	_, err := q.Receive(t.Context(), driver.ReceiveRequest{Max: 1, Visibility: hold})
	wantCode(t, err, driver.ErrUnsupported)
	_, err = b.OpenQueue(t.Context(), "orders")
	wantCode(t, err, driver.ErrUnsupported)
	if want := "schema 10 in Redis, and this version knows up to 9"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got error %v, want one that says %q", err, want)
	}
	_, err = b.QueueConfig(t.Context(), "orders")
	wantCode(t, err, driver.ErrUnsupported)
	wantCode(t, b.ConfigureQueue(t.Context(), "orders", driver.Config{}), driver.ErrUnsupported)
	wantCode(t, b.DeleteQueue(t.Context(), "orders"), driver.ErrUnsupported)
	wantCode(t, b.server.DeleteShard(t.Context(), "orders", 0, "d", q.Incarnation), driver.ErrUnsupported)
	setSchema("2")
	receive(t, q, 1, hold)
}

// TestSchema1ShardFoundLaterIsMigrated: a restore or a failover can bring the earlier
// layout back while the queue is open.
func TestSchema1ShardFoundLaterIsMigrated(t *testing.T) {
	t.Parallel()
	client := connect(t, redistest.SharedServer(t).ClientOption())
	q := configured(t, open(t, client, &Options{Prefix: redistest.Prefix(t)}), driver.Config{Shards: 2, MaxMessages: 10})
	send(t, q, "a", "b", "c", "d")
	for _, s := range q.Shards {
		for _, command := range []rueidis.Completed{
			client.B().Hset().Key(s.Keys[0]).FieldValue().FieldValue("config", field(t, q.backend, s.Keys[0], "rules")).Build(),
			client.B().Hdel().Key(s.Keys[0]).Field("schema", "rules").Build(),
		} {
			if err := client.Do(t.Context(), command).Error(); err != nil {
				t.Fatal(err)
			}
		}
	}
	wantStats(t, q, driver.Stats{Ready: 4})
	drain(t, q)
	wantStats(t, q, driver.Stats{})
}
