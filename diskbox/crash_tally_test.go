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
)

// A crashTally counts what lives come to.
type crashTally struct {
	mu                            sync.Mutex // guards the fields below
	images, nested                int
	sends                         int // answered, and looked for in an image
	lost, back, unopenable, other int
	failures                      []error
	// enough ends all lives early.
	enough atomic.Bool
}

func (t *crashTally) String() string {
	return fmt.Sprintf("%d images (%d nested), %d acknowledged sends looked for: %d lost, %d back, %d unopenable, %d otherwise wrong",
		t.images, t.nested, t.sends, t.lost, t.back, t.unopenable, t.other)
}

const crashFailuresShown = 5

// add enters a verdict. What is wrong without being lost, back or unopenable is
// otherwise wrong.
func (t *crashTally) add(v *crashVerdict, context string) {
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

// expectNone fails the test for what is wrong.
func (t *crashTally) expectNone(tb testing.TB) {
	tb.Helper()
	for _, err := range t.failures[:min(len(t.failures), crashFailuresShown)] {
		tb.Error(err)
	}
}

// over reports whether there is nothing more to find out.
func (t *crashTally) over() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.failures) > 0 || t.enough.Load()
}

// count counts an image.
func (t *crashTally) count(image *crashImage) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.images++
	if image.depth > 0 {
		t.nested++
	}
	for n := range image.books {
		for token := range image.books[n].items {
			if !image.books[n].items[token].unsent {
				t.sends++
			}
		}
	}
}

// fill lives lives, several at a time, until the images are used up or something
// is wrong.
func (t *crashTally) fill(tb *testing.T, images int, configure func(*crashLife)) {
	tb.Helper()
	var budget atomic.Int64
	budget.Store(int64(images))
	var seeds, lives atomic.Uint64
	seeds.Store(uint64(numberFromEnv(tb, "MAILBOX_CRASH_SEED", 1) - 1))
	start := time.Now()
	tb.Run("lives", func(tb *testing.T) {
		for n := range runtime.GOMAXPROCS(0) {
			tb.Run(strconv.Itoa(n), func(tb *testing.T) {
				tb.Parallel()
				for budget.Load() > 0 && !t.over() {
					seed := seeds.Add(1)
					lives.Add(1)
					synctest.Test(tb, func(tb *testing.T) {
						l := newCrashLife(tb.Context(), seed, &budget, t)
						if configure != nil {
							configure(l)
						}
						l.run()
					})
				}
			})
		}
	})
	tb.Logf("%v; %d lives, %.0f images a second", t, lives.Load(), float64(t.images)/time.Since(start).Seconds())
}
