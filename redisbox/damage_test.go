package redisbox

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/redistest"
)

// overwrite replaces a field of a message; "" removes it.
func overwrite(t testing.TB, client rueidis.Client, key, id, value string) {
	t.Helper()
	command := client.B().Hset().Key(key).FieldValue().FieldValue(id, value).Build()
	if value == "" {
		command = client.B().Hdel().Key(key).Field(id).Build()
	}
	if err := client.Do(t.Context(), command).Error(); err != nil {
		t.Fatal(err)
	}
}

// TestDamagedMessageBecomesDeadLetter: a message whose stored bytes are not those that
// were sent is never delivered, and never blocks others.
func TestDamagedMessageBecomesDeadLetter(t *testing.T) {
	for name, damage := range map[string]struct{ key, value string }{
		"a body that is missing":      {"data", ""},
		"a body that is cut short":    {"data", "short"},
		"a body of other bytes":       {"data", strings.Repeat("x", 200)},
		"a body that is another's":    {"data", "another's"},
		"an entry that is cut short":  {"state", "short"},
		"an entry of the wrong shape": {"state", strings.Repeat("\xff", 90)},
	} {
		for _, test := range []struct {
			config   driver.Config
			priority int
		}{
			{driver.Config{}, 0},
			{driver.Config{StrictGroups: true}, 0},
			{driver.Config{MaxDead: 1}, 0},
			{driver.Config{}, 3},
			{driver.Config{MaxDead: 1}, 3},
		} {
			t.Run(fmt.Sprintf("%s, strict %v, room for %d, priority %d", name, test.config.StrictGroups, test.config.MaxDead, test.priority), func(t *testing.T) {
				client := connect(t, redistest.SharedServer(t).ClientOption())
				q := configured(t, open(t, client, &Options{Prefix: redistest.Prefix(t)}), test.config)
				damaged := damageOne(t, client, q, damage.key, damage.value, test.priority)
				for range q.Peek(t.Context(), driver.Query{}) { // peeking must work too
				}
				var got []string
				for range 3 {
					batch, err := q.Receive(t.Context(), driver.ReceiveRequest{Max: 3, Visibility: hold})
					if err != nil {
						t.Fatal(err)
					}
					for _, d := range batch {
						got = append(got, string(d.Body))
					}
				}
				if strings.Join(got, " ") != "first last" {
					t.Errorf("got %q, want the messages that are whole", got)
				}
				dead := deadLetters(t, q)
				if len(dead) != 1 || dead[0].ID != damaged || dead[0].Reason != driver.ReasonIntegrity || dead[0].LastError == "" {
					t.Fatalf("dead letters: %+v", dead)
				}
				if string(dead[0].Body) == "first" {
					t.Error("the dead letter has another message's body")
				}
				wantStats(t, q, driver.Stats{InFlight: 2, Dead: 1})
			})
		}
	}
}

// damageOne sends three messages with a priority that have been delivered before, and damages
// the second, whose id it returns.
func damageOne(t *testing.T, client rueidis.Client, q *handle, key, value string, priority int) string {
	t.Helper()
	var ids []string
	for _, body := range []string{"first", "damaged", "last"} {
		ids = append(ids, sendOne(t, q, driver.Outgoing{Body: []byte(body), Group: body, Priority: priority}).ID)
	}
	for _, d := range receive(t, q, 3, hold) {
		if _, err := q.Extend(t.Context(), []driver.Extension{{Receipt: d.Receipt}}); err != nil {
			t.Fatal(err)
		}
	}
	if value == "another's" {
		var err error
		if value, err = client.Do(t.Context(), client.B().Hget().Key(keyOf(q, key)).Field(ids[0]).Build()).ToString(); err != nil {
			t.Fatal(err)
		}
	}
	overwrite(t, client, keyOf(q, key), ids[1], value)
	return ids[1]
}

// TestDamagedMessageWaitsForDeadLetterRoom: while the dead letters are full a damaged message
// waits, and is still not delivered.
func TestDamagedMessageWaitsForDeadLetterRoom(t *testing.T) {
	client := connect(t, redistest.SharedServer(t).ClientOption())
	q := configured(t, open(t, client, &Options{Prefix: redistest.Prefix(t)}), driver.Config{MaxDead: 1})
	send(t, q, "dead")
	if err := q.DeadLetter(t.Context(), []driver.DeadLetterRequest{{Receipt: receive(t, q, 1, hold)[0].Receipt, Reason: driver.ReasonFatal}}); err != nil {
		t.Fatal(err)
	}
	ids := send(t, q, "damaged", "missing", "whole")
	overwrite(t, client, keyOf(q, "data"), ids[0], strings.Repeat("x", 200))
	overwrite(t, client, keyOf(q, "data"), ids[1], "")
	if got := receive(t, q, 1, hold); string(got[0].Body) != "whole" {
		t.Errorf("got %q", got[0].Body)
	}
	wantNothing(t, q)
	wantStats(t, q, driver.Stats{Delayed: 2, InFlight: 1, Dead: 1})
}

// RED-2: a message whose entry is missing or damaged is delivered or becomes a dead
// letter; it does not hang the server. The message was nacked, and so is in pending.
func TestMissingEntryDoesNotHangServer(t *testing.T) {
	t.Parallel()
	for damage, value := range map[string]string{"missing": "", "damaged": "?"} {
		t.Run(damage, func(t *testing.T) {
			server := redistest.Standalone(t)
			client := connect(t, server.ClientOption())
			q := openQueue(t, open(t, client, &Options{RetryFor: time.Minute}))
			id := send(t, q, "a")[0]
			got := receive(t, q, 1, hold)
			if err := q.Nack(t.Context(), []driver.Nack{{Receipt: got[0].Receipt}}); err != nil {
				t.Fatal(err)
			}
			overwrite(t, client, keyOf(q, "state"), id, value)
			got, err := q.Receive(t.Context(), driver.ReceiveRequest{Max: 10, Visibility: hold})
			if err != nil || len(got) > 1 {
				t.Errorf("receive: %d deliveries of one message, %v", len(got), err)
			}
			if len(got) > 0 {
				if err := q.Ack(t.Context(), receiptsFrom(got[:1])); err != nil {
					t.Errorf("ack: %v", err)
				}
			}
			if got, err := q.Receive(t.Context(), driver.ReceiveRequest{Max: 10, Visibility: hold}); err != nil || len(got) > 0 {
				t.Errorf("receive: %d deliveries, %v", len(got), err)
			}
		})
	}
}
