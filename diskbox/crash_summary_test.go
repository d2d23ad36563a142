package diskbox

import (
	"fmt"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/internal/testing/volume"
)

// A crashSummary counts the results of all images.
type crashSummary struct {
	mu                            sync.Mutex // guards the fields below
	images, nested                int
	sends                         int // answered sends that were looked for in an image
	lost, back, unopenable, other int
	failures                      []error
	// enough ends all envs early.
	enough atomic.Bool
}

func (t *crashSummary) String() string {
	return fmt.Sprintf("%d images (%d nested), %d acknowledged sends looked for: %d lost, %d back, %d unopenable, %d otherwise wrong",
		t.images, t.nested, t.sends, t.lost, t.back, t.unopenable, t.other)
}

const crashFailuresShown = 5

// add adds a result. Errors other than lost, back and unopenable count as otherwise wrong.
func (t *crashSummary) add(v *crashResult, context string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	err := v.err()
	if err == nil {
		return
	}
	t.lost += v.lost
	t.back += v.back
	switch {
	case v.unopenable:
		t.unopenable++
	case v.lost+v.back == 0:
		t.other++
	}
	t.failures = append(t.failures, fmt.Errorf("%s: %w", context, err))
}

// expectNone fails the test if a result is wrong.
func (t *crashSummary) expectNone(tb testing.TB) {
	tb.Helper()
	for _, err := range t.failures[:min(len(t.failures), crashFailuresShown)] {
		tb.Error(err)
	}
}

// over reports whether the test can end.
func (t *crashSummary) over() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.failures) > 0 || t.enough.Load()
}

// count counts an image.
func (t *crashSummary) count(image *crashImage) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.images++
	if image.depth > 0 {
		t.nested++
	}
	for n := range image.models {
		for token := range image.models[n].messages {
			if !image.models[n].messages[token].unsent {
				t.sends++
			}
		}
	}
}

// fill runs envs, several at a time, until the images are used up or a result is wrong.
func (t *crashSummary) fill(tb *testing.T, images int, configure func(*crashEnv)) {
	tb.Helper()
	var budget atomic.Int64
	budget.Store(int64(images))
	var seeds, lives atomic.Uint64
	seeds.Store(volume.Seed(tb) - 1)
	start := time.Now()
	tb.Run("lives", func(tb *testing.T) {
		for n := range runtime.GOMAXPROCS(0) {
			tb.Run(strconv.Itoa(n), func(tb *testing.T) {
				tb.Parallel()
				for budget.Load() > 0 && !t.over() {
					seed := seeds.Add(1)
					lives.Add(1)
					synctest.Test(tb, func(tb *testing.T) {
						e := newCrashEnv(tb.Context(), seed, &budget, t)
						if configure != nil {
							configure(e)
						}
						e.run()
					})
				}
			})
		}
	})
	tb.Logf("%v; %d lives, %.0f images a second", t, lives.Load(), float64(t.images)/time.Since(start).Seconds())
}
