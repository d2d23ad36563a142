package completion

import (
	"sync"
	"time"
)

// workers runs tasks on goroutines of one queue. A goroutine waits a little for its next
// task: calls of a backend need a deep stack, and to grow the stack of a new goroutine costs
// about a tenth of a message.
type workers struct {
	idle   chan task
	closed chan struct{}
	close  func()
}

type task interface {
	// run may block, and completes operations in the round.
	run(r *Round)
}

// linger is how long a goroutine waits for its next task.
const linger = 100 * time.Millisecond

func newWorkers() workers {
	closed := make(chan struct{})
	return workers{idle: make(chan task), closed: closed, close: sync.OnceFunc(func() { close(closed) })}
}

// start runs a task on another goroutine.
func (w *workers) start(t task) {
	select {
	case w.idle <- t:
	default:
		go w.work(t)
	}
}

func (w *workers) work(t task) {
	var r Round
	var timer *time.Timer
	for {
		t.run(&r)
		r.End()
		t = nil // nothing of it is kept while the goroutine waits
		if timer == nil {
			timer = time.NewTimer(linger)
		} else {
			timer.Reset(linger)
		}
		select {
		case t = <-w.idle:
		case <-timer.C:
			return
		case <-w.closed:
			return
		}
	}
}
