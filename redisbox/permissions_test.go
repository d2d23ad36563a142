package redisbox

import (
	"os"
	"strings"
	"testing"

	"github.com/redis/rueidis"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/redistest"
)

// leastRules are the permissions that a user needs for queues under the prefix "shop:",
// and no others.
var leastRules = []string{
	"~shop:*", "&shop:*",
	// for this package
	"+eval", "+evalsha", "+sadd", "+srem", "+sscan", "+hget", "+ssubscribe", "+sunsubscribe", "+wait", "+info",
	// for its scripts
	"+get", "+hdel", "+hexists", "+hget", "+hincrby", "+hkeys", "+hlen", "+hmget", "+hrandfield", "+hset",
	"+info", "+lindex", "+llen", "+lpop", "+lpos", "+lpush", "+lrange", "+lrem", "+ltrim",
	"+rpush", "+set", "+spublish", "+time", "+unlink", "+zadd", "+zcard", "+zrange", "+zrangebylex",
	"+zrangebyscore", "+zrem", "+zremrangebyscore", "+zscore",
	// for the client
	"+hello", "+ping", "+role", "+cluster|slots", "+cluster|shards", "+client|tracking", "+client|setname",
}

// TestRestrictedUserWorksOverTLS: all operations work over encrypted connections for a
// user with only the needed permissions, on all kinds of servers.
func TestRestrictedUserWorksOverTLS(t *testing.T) {
	t.Parallel()
	options := []redistest.Option{redistest.TLS(), redistest.User("shop", "secret", leastRules...), redistest.Replicas(1)}
	for name, start := range map[string]func(t *testing.T) rueidis.ClientOption{
		"standalone": func(t *testing.T) rueidis.ClientOption { return redistest.Standalone(t, options...).ClientOption() },
		"sentinels":  func(t *testing.T) rueidis.ClientOption { return redistest.Sentinel(t, options...).ClientOption() },
		"cluster":    func(t *testing.T) rueidis.ClientOption { return redistest.Cluster(t, options...).ClientOption() },
	} {
		t.Run(name, func(t *testing.T) {
			option := start(t)
			if option.TLSConfig == nil || option.Username != "shop" {
				t.Fatal("the client is neither encrypted nor restricted: this proves nothing")
			}
			useEverything(t, option)
			q := openQueue(t, open(t, connect(t, option), &Options{Prefix: "shop:"}))
			if got := q.Traits().Durability; got != driver.DurabilityNone { // CONFIG is not permitted
				t.Errorf("got durability %q", got)
			}
			// Keys outside the prefix are refused, with the reason.
			b := open(t, connect(t, option), &Options{Prefix: "other:"})
			_, err := b.OpenQueue(t.Context(), "orders")
			wantCode(t, err, driver.ErrForbidden)
			if !strings.Contains(err.Error(), "NOPERM") {
				t.Errorf("got %v, want it to say what is wrong", err)
			}
		})
	}
}

// TestDocumentedPermissionsAreTested compares the documented permissions with leastRules.
func TestDocumentedPermissionsAreTested(t *testing.T) {
	text, err := os.ReadFile("../docs/redis.md")
	if err != nil {
		t.Fatal(err)
	}
	manual := strings.Join(strings.Fields(string(text)), " ")
	if rules := strings.Join(leastRules, " "); !strings.Contains(manual, rules) {
		t.Errorf("docs/redis.md does not say that a user needs\n%s", rules)
	}
}

func TestNamesAreKeptOrRefused(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 1000)
	for kind, option := range topologies(t) {
		b := open(t, connect(t, option), &Options{Prefix: redistest.Prefix(t)})
		names := []string{
			"a", "a:b", ":", "::", "queue:a", "a b", "a*?[b]", `a"b\c'`, "a/b", "größe", "日本語", "🎈", "a\u202eb",
			"..", "%7Bx%7D", strings.Repeat("x", driver.MaxNameBytes),
		}
		for i, name := range names {
			q, err := b.OpenQueue(t.Context(), name)
			if err != nil {
				t.Errorf("%s, %q: %v", kind, name, err)
				continue
			}
			send(t, q, names[i])
		}
		for _, name := range names { // each has its own message only
			q, err := b.OpenQueue(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			if got := receive(t, q, 1, hold); string(got[0].Body) != name {
				t.Errorf("%s: %q has the message of %q", kind, name, got[0].Body)
			}
			wantNothing(t, q)
		}
		listed := make(map[string]bool)
		for name, err := range b.Queues(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			listed[name] = true
		}
		if len(listed) != len(names) {
			t.Errorf("%s: %d names are listed, want %d", kind, len(listed), len(names))
		}
		for _, name := range []string{"", "a{b", "a}b", "{a}", "}{", "a\x00b", "a\nb", "a\xffb", long} {
			_, err := b.OpenQueue(t.Context(), name)
			wantCode(t, err, driver.ErrInvalid)
			if !strings.Contains(err.Error(), "name") {
				t.Errorf("%s, %.10q: got %v, want it to say what is wrong", kind, name, err)
			}
		}
	}
}
