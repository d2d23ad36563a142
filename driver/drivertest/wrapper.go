package drivertest

import (
	"context"
	"reflect"
	"runtime"
	"testing"

	"github.com/mailboxmq/mailbox/driver"
)

// RunWrapper checks a backend that wraps another: each method of driver.Queue that is called on
// one of its queues must reach the wrapped queue. So a wrapper cannot drop an ability, not even
// one that is added to driver.Queue later. Close is not checked: a wrapper may share the
// wrapped queue.
func RunWrapper(t *testing.T, wrap func(driver.Opener) driver.Opener) {
	t.Helper()
	behind := new(spyQueue)
	queue, err := wrap(behind).OpenQueue(t.Context(), queueName)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	methods := reflect.TypeFor[driver.Queue]()
	for i := range methods.NumMethod() {
		if name := methods.Method(i).Name; name != "Close" && !behind.isReached(t.Context(), queue, name) {
			t.Errorf("%s of the wrapper does not call the wrapped queue", name)
		}
	}
}

// spyQueue is a backend with one queue. Most methods of driver.Queue are nil, so that a call of
// them panics, which shows that the call arrived. Traits and Identity work, because wrappers
// use them when they open a queue.
type spyQueue struct {
	driver.Queue
	reached bool
}

func (s *spyQueue) OpenQueue(context.Context, string) (driver.Queue, error) { return s, nil }

func (s *spyQueue) Traits() driver.Traits {
	s.reached = true
	return driver.Traits{DeadLetters: true, Peek: true, Move: true, LateAck: true, ForgetDedup: true, Usage: true, Pause: true, Edit: true, Schedules: true}
}

func (s *spyQueue) Identity() string {
	s.reached = true
	return "spy"
}

// isReached calls a method of queue with zero values, and reports whether the call reaches the
// spy.
func (s *spyQueue) isReached(ctx context.Context, queue driver.Queue, name string) (reached bool) {
	method := reflect.ValueOf(queue).MethodByName(name)
	var arguments []reflect.Value
	for i := range method.Type().NumIn() {
		argument := reflect.New(method.Type().In(i)).Elem()
		if argument.Type() == reflect.TypeFor[context.Context]() {
			argument = reflect.ValueOf(ctx)
		}
		arguments = append(arguments, argument)
	}
	s.reached = false
	defer func() {
		if _, missing := recover().(runtime.Error); missing || s.reached {
			reached = true
		}
	}()
	results := method.Call(arguments)
	if sequence := results[0]; sequence.Kind() == reflect.Func {
		for range sequence.Seq2() {
		}
	}
	return false
}
