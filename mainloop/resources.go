package mainloop

import (
	"context"
	"errors"
	"io"
	"reflect"
	"slices"
	"sync"

	"github.com/mailboxmq/mailbox"
)

// Resources are what agents use beside the model: clients, resolvers, databases.
// Each is bound by its type and made when it is first asked for. Those of
// Options.Resources live as long as the caller wants, and are shared by all runs.
// Every run has Resources of its own above them, in Run.Resources, for what
// belongs to one request; the loop closes these when the run is over.
//
// Make one with NewResources. It is safe for concurrent use.
type Resources struct {
	below *Resources // asked for what is not bound here; may be nil

	mu       sync.Mutex // guards the fields below
	bindings map[reflect.Type]*binding
	made     []any // in the order in which they were made
	closed   bool
}

// A binding is how a resource is made, and then the resource.
type binding struct {
	once  sync.Once
	make  func(ctx context.Context) (any, error)
	value any
	err   error
}

// NewResources returns Resources with nothing bound. Below, if it is not nil, is
// asked for what is not bound.
func NewResources(below *Resources) *Resources {
	return &Resources{below: below, bindings: make(map[reflect.Type]*binding)}
}

// Bind says how the resource of type R is made, in place of an earlier binding and
// of one below. make is called once, by the first Resource call, with its context,
// and may ask r for other resources. An error is kept.
func Bind[R any](r *Resources, make func(ctx context.Context, r *Resources) (R, error)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bindings[reflect.TypeFor[R]()] = &binding{make: func(ctx context.Context) (any, error) { return make(ctx, r) }}
}

// Resource returns the resource of type R, and makes it if it is not made yet. It
// blocks while it is being made. Codes: ErrNotFound if no R is bound; ErrClosed;
// errors of the function that was bound as they are.
func Resource[R any](ctx context.Context, r *Resources) (resource R, err error) {
	kind := reflect.TypeFor[R]()
	for at := r; at != nil; at = at.below {
		found, err := at.find(kind)
		if err != nil {
			return resource, err
		}
		if found == nil {
			continue
		}
		found.once.Do(func() {
			if found.value, found.err = found.make(ctx); found.err == nil {
				at.keep(found.value)
			}
		})
		resource, _ = found.value.(R)
		return resource, found.err
	}
	return resource, &mailbox.Error{Code: mailbox.ErrNotFound, Op: "resource", Detail: kind.String()}
}

func (r *Resources) find(kind reflect.Type) (*binding, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, &mailbox.Error{Code: mailbox.ErrClosed, Op: "resource", Detail: kind.String()}
	}
	return r.bindings[kind], nil
}

func (r *Resources) keep(resource any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.made = append(r.made, resource)
}

// Close closes the resources that were made here and are io.Closers, the last one
// first. It leaves those below alone. Closing twice is fine.
func (r *Resources) Close() error {
	r.mu.Lock()
	made := r.made
	r.made, r.closed = nil, true
	r.mu.Unlock()
	var err error
	for _, resource := range slices.Backward(made) {
		if closer, ok := resource.(io.Closer); ok {
			err = errors.Join(err, closer.Close())
		}
	}
	return err
}

type resourcesKey struct{}

// ResourcesOf returns the resources of the run that a context of Prepare, a Tool,
// an Adapter or Finalize belongs to, and nil for any other context.
func ResourcesOf(ctx context.Context) *Resources {
	r, _ := ctx.Value(resourcesKey{}).(*Resources)
	return r
}
