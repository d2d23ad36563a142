package dispatch

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime/debug"
	"slices"
	"sync"
)

// Options configure a Dispatcher. The zero value, and nil, mean the defaults.
type Options struct {
	// Failed is called for each subscriber that failed, for publishers that have
	// no caller to return an error to. It is called synchronously, from many
	// goroutines at once. Nil means no call.
	Failed func(ctx context.Context, event any, err error)
}

// A Dispatcher holds the subscribers by type of event. Make one with New; the
// zero Dispatcher has no options and no subscribers. It is safe for concurrent
// use, also by its subscribers while they are called.
type Dispatcher struct {
	options Options

	mu sync.RWMutex // guards the fields below
	// subscribers are by the type of event; those of the nil type get all events.
	// The slices are replaced and never changed, so they can be read without the
	// lock.
	subscribers map[reflect.Type][]*subscriber
	last        uint64 // the number of the latest subscription
}

// A subscriber is one function and when it subscribed.
type subscriber struct {
	number uint64
	handle func(ctx context.Context, event any) error
}

// New returns a dispatcher without subscribers.
func New(options *Options) *Dispatcher {
	d := new(Dispatcher)
	if options != nil {
		d.options = *options
	}
	return d
}

// A panicError is the error of a subscriber that panicked.
type panicError struct {
	Value any
	Stack []byte
}

// Error returns the panic value and the stack.
func (e *panicError) Error() string {
	return fmt.Sprintf("dispatch: subscriber panicked: %v\n%s", e.Value, e.Stack)
}

// Subscribe calls handle for every event that is published as type E, from now
// on, until unsubscribe is called; events that are being published at that moment
// may still arrive. Subscribers run on the publishing goroutine, several at once,
// and delay it for as long as they take.
func Subscribe[E any](d *Dispatcher, handle func(ctx context.Context, event E) error) (unsubscribe func()) {
	return d.subscribe(reflect.TypeFor[E](), func(ctx context.Context, event any) error {
		value, _ := event.(E) // only the nil of an interface type is not an E
		return handle(ctx, value)
	})
}

// SubscribeAll is Subscribe for events of every type.
func SubscribeAll(d *Dispatcher, handle func(ctx context.Context, event any) error) (unsubscribe func()) {
	return d.subscribe(nil, handle)
}

func (d *Dispatcher) subscribe(kind reflect.Type, handle func(context.Context, any) error) func() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.subscribers == nil {
		d.subscribers = make(map[reflect.Type][]*subscriber)
	}
	d.last++
	s := &subscriber{number: d.last, handle: handle}
	d.subscribers[kind] = append(slices.Clone(d.subscribers[kind]), s)
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		rest := slices.DeleteFunc(slices.Clone(d.subscribers[kind]), func(other *subscriber) bool { return other == s })
		if len(rest) == 0 {
			delete(d.subscribers, kind)
		} else {
			d.subscribers[kind] = rest
		}
	}
}

// Publish calls all subscribers to events of type E and returns when they have
// returned. The error joins those of the subscribers that failed, one with the stack
// for one that panicked. Subscribers are called even if the context has ended.
func Publish[E any](ctx context.Context, d *Dispatcher, event E) error {
	subscribers := d.of(reflect.TypeFor[E]())
	if len(subscribers) == 0 {
		return nil // without making an interface of the event
	}
	return d.tell(ctx, subscribers, event)
}

// of returns the subscribers to a type, in the order in which they subscribed.
func (d *Dispatcher) of(kind reflect.Type) []*subscriber {
	d.mu.RLock()
	own, all := d.subscribers[kind], d.subscribers[nil]
	d.mu.RUnlock()
	switch {
	case len(all) == 0:
		return own
	case len(own) == 0:
		return all
	}
	merged := slices.Concat(own, all)
	slices.SortFunc(merged, func(a, b *subscriber) int { return int(a.number) - int(b.number) })
	return merged
}

func (d *Dispatcher) tell(ctx context.Context, subscribers []*subscriber, event any) error {
	var failures []error
	for _, s := range subscribers {
		if err := s.call(ctx, event); err != nil {
			failures = append(failures, err)
			if d.options.Failed != nil {
				d.options.Failed(ctx, event, err)
			}
		}
	}
	return errors.Join(failures...)
}

// call turns a panic into an error: telemetry must not end the program it observes.
func (s *subscriber) call(ctx context.Context, event any) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = &panicError{Value: value, Stack: debug.Stack()}
		}
	}()
	return s.handle(ctx, event)
}
