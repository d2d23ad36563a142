package sqsclients_test

import (
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Three hundred queues that nobody uses cost less than a megabyte.
func TestIdleQueuesCostNextToNothing(t *testing.T) {
	// The collector is to run all the time, so that the heap is what is in use.
	t.Setenv("GOGC", "5")
	const queues, most = 300, 1 << 20
	d := start(t)
	create := func(from, to int) {
		for i := from; i < to; i++ {
			d.create(fmt.Sprintf("queue-%d", i), nil)
		}
	}
	create(0, 20) // what is made once for all queues is there then
	before := d.heap()
	create(20, 20+queues)
	after := d.heap()
	t.Logf("%d idle queues: %.0f KiB, %.0f bytes each, of a heap of %.1f MiB", queues, (after-before)/1024, (after-before)/queues, after/(1<<20))
	if after-before > most {
		t.Errorf("that is more than %d KiB", most>>10)
	}
	if after-before < 100*queues {
		t.Error("that cannot be: the figures are of something else")
	}
}

// heap is how many bytes the daemon's heap has in use: the least of many figures, which
// is that after a collection.
func (d *daemon) heap() float64 {
	d.t.Helper()
	d.http.CloseIdleConnections()
	least := math.Inf(1)
	for range 300 {
		least = min(least, d.metric("go_memstats_heap_alloc_bytes"))
	}
	return least
}

// metric asks the daemon for one of its figures.
func (d *daemon) metric(name string) (value float64) {
	d.t.Helper()
	request, err := http.NewRequestWithContext(d.t.Context(), http.MethodGet, d.endpoint()+"/metrics", http.NoBody)
	if err != nil {
		d.t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+d.token())
	answer, err := d.http.Do(request)
	if err != nil {
		d.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, 16<<20))
	if err != nil {
		d.t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(text), "\n"+name+" ")
	if _, err := fmt.Sscan(rest, &value); err != nil || !found {
		d.t.Fatalf("the daemon does not tell %s: %v", name, err)
	}
	return value
}

// token is that of the operator.
func (d *daemon) token() string {
	d.t.Helper()
	text, err := os.ReadFile(filepath.Join(d.dir, "operator.token"))
	if err != nil {
		d.t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}
