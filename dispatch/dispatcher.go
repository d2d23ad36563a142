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
	// Failed is told about each subscriber that failed, for who has nobody to
	// return an error to. It is called synchronously, from many goroutines at
	// once. Nil means nobody is told.
	Failed func(ctx context.Context, event any, err error)
}

// A Dispatcher knows who wants to be told what. Make one with New; the zero
// Dispatcher is one without options. It is safe for concurrent use, also by its
// subscribers while they are called.
type Dispatcher struct {
	options Options

	mu sync.RWMutex // guards the fields below
	// subscribers are by the type of event; those of nil get all. The slices
	// are replaced and never changed, so that they can be read without the
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

// A PanicError is what became of a subscriber that panicked.
type PanicError struct {
	Value any
	Stack []byte
}

// Error tells what the subscriber panicked with, and where.
func (e *PanicError) Error() string {
	return fmt.Sprintf("dispatch: subscriber panicked: %v\n%s", e.Value, e.Stack)
}

// Subscribe makes handle be told every event that is published as type E, from
// now on. The function that it returns ends that; events that are being
// published meanwhile may still arrive. Subscribers are called on the goroutine
// that publishes, many at once, and hold it up for as long as they take.
func Subscribe[E any](d *Dispatcher, handle func(ctx context.Context, event E) error) (unsubscribe func()) {
	return d.subscribe(reflect.TypeFor[E](), func(ctx context.Context, event any) error {
		value, _ := event.(E) // what is no E is the nil of an interface type
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

// Publish tells event to everybody who has subscribed to events of type E, and
// returns when all have been told. The error joins those of the subscribers
// that failed, and is a *PanicError where one has panicked. A context that has
// ended does not keep anybody from being told.
func Publish[E any](ctx context.Context, d *Dispatcher, event E) error {
	subscribers := d.of(reflect.TypeFor[E]())
	if len(subscribers) == 0 {
		return nil // without making an interface of the event
	}
	return d.tell(ctx, subscribers, event)
}

// of returns the subscribers for a type, in the order in which they subscribed.
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

// call turns a panic into an error: telemetry must not end what it watches.
func (s *subscriber) call(ctx context.Context, event any) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = &PanicError{Value: value, Stack: debug.Stack()}
		}
	}()
	return s.handle(ctx, event)
}
