package gates_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/internal/testing/redistest"
)

// maxReorder is the largest number of messages by which a failover may reorder a shard.
const maxReorder = 32

var reorderGauge = regexp.MustCompile(`(?m)^mailbox_reorder_depth_max\{shard="0"\} (\d+)$`)

// TestG9OrderHoldsThroughFailover sends and receives through a daemon on a Redis
// Cluster whose primary is replaced meanwhile. No confirmed message is lost, no
// message is delivered after more than 32 later ones, and the daemon's gauge agrees.
func TestG9OrderHoldsThroughFailover(t *testing.T) {
	redis := redistest.Cluster(t, redistest.NodeTimeout(5*time.Second)) // failovers take up to twice as long
	d := start(t, append(onDisk, "--backend=redis://"+redis.Nodes()[0].Addr(), "--listen-metrics=127.0.0.1:0")...)
	client := openHTTP(t, d.http, d.token)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	const queue, messages = "orders", 400
	for n := range messages {
		if n == messages/2 {
			failOver(ctx, t, redis, queue)
		}
		retryWhileUnavailable(ctx, t, func() error {
			_, _, err := client.send(ctx, queue, fmt.Sprint(n), []byte(fmt.Sprint(n)))
			return err
		})
	}
	seen := make(map[int]bool)
	latest, depth := -1, 0
	for len(seen) < messages && ctx.Err() == nil {
		if len(seen) == messages/2 {
			failOver(ctx, t, redis, queue)
		}
		var got []delivery
		retryWhileUnavailable(ctx, t, func() (err error) {
			got, err = client.receive(ctx, queue, wanted{most: 1, visibility: 10 * time.Second, wait: time.Second})
			return err
		})
		for _, m := range got {
			n, err := strconv.Atoi(string(m.body))
			if err != nil {
				t.Fatal(err)
			}
			if m.attempt == 1 && n < latest {
				overtook := 0
				for later := range seen {
					if later > n {
						overtook++
					}
				}
				depth = max(depth, overtook)
			}
			seen[n] = true
			latest = max(latest, n)
			if err := client.ack(ctx, queue, m); err != nil && codeOf(err) != "E_NOT_FOUND" && codeOf(err) != "E_UNAVAILABLE" {
				t.Error(err)
			}
		}
	}
	if len(seen) != messages {
		t.Errorf("%d of %d messages were received", len(seen), messages)
	}
	if depth > maxReorder {
		t.Errorf("a message was delivered after %d later ones, want at most %d", depth, maxReorder)
	}
	found := reorderGauge.FindStringSubmatch(scrape(t, d))
	if found == nil {
		t.Fatal("the metrics have no mailbox_reorder_depth_max")
	}
	if gauge, _ := strconv.Atoi(found[1]); gauge > maxReorder || gauge < min(depth, 1) {
		t.Errorf("mailbox_reorder_depth_max is %d, the test saw %d; want at most %d", gauge, depth, maxReorder)
	}
	t.Logf("%d messages through two failovers, reordered by %d at most", messages, depth)
}

// failOver replaces the primary of a queue by its replica.
func failOver(ctx context.Context, t *testing.T, redis *redistest.ClusterGroup, queue string) {
	t.Helper()
	primary, err := redis.PrimaryOf(ctx, "{queue:"+queue+"}:meta")
	if err != nil {
		t.Fatal(err)
	}
	replicas, err := redis.ReplicasOf(ctx, primary)
	if err != nil || len(replicas) == 0 {
		t.Fatal(replicas, err)
	}
	if err := redis.Failover(ctx, replicas[0]); err != nil {
		t.Fatal(err)
	}
}

// retryWhileUnavailable retries do while Redis has no primary.
func retryWhileUnavailable(ctx context.Context, t *testing.T, do func() error) {
	t.Helper()
	for {
		err := do()
		if err == nil {
			return
		}
		if code := codeOf(err); code != "E_UNAVAILABLE" || ctx.Err() != nil {
			t.Fatal(err)
		}
		pause(50 * time.Millisecond)
	}
}

// scrape returns the metrics of a daemon.
func scrape(t *testing.T, d *daemon) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+d.metrics+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
