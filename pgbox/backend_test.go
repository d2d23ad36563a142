package pgbox

import (
	"runtime"
	"sync"
	"testing"
)

// A call that was let in before Close may be submitted while Close waits for others, or after.
// The race detector notices a Close that does not expect it.
func TestCallsCanBeginBesideClose(t *testing.T) {
	for range 200 {
		b := &Backend{cancel: func() {}}
		release := make(chan struct{})
		b.start(func() { <-release })
		var others sync.WaitGroup
		others.Go(func() { _ = b.Close() })
		others.Go(func() {
			runtime.Gosched()
			close(release)
			for range 10 {
				runtime.Gosched()
			}
			others.Add(1)
			b.start(others.Done)
		})
		others.Wait()
	}
}
