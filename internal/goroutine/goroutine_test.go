package goroutine_test

import (
	"strings"
	"testing"

	"github.com/mailboxmq/mailbox/internal/goroutine"
)

func TestStackReturnsStackOfGivenGoroutine(t *testing.T) {
	for range 200 { // enough stacks to need several buffers
		go func() { <-t.Context().Done() }()
	}
	id, release := make(chan int64), make(chan struct{})
	defer close(release)
	go lingering(id, release)
	stack := goroutine.Stack(<-id)
	if !strings.Contains(stack, "lingering") || strings.Count(stack, "goroutine ") != 2 { // the goroutine, and the one that created it
		t.Errorf("the stack is %s", stack)
	}
	if all := goroutine.Stack(-1); strings.Count(all, "goroutine ") < 200 {
		t.Error("an unknown goroutine does not return all stacks")
	}
}

// lingering sends its number and waits.
func lingering(id chan<- int64, release <-chan struct{}) {
	id <- goroutine.ID()
	<-release
}
