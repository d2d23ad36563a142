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
// Each is bound by its type and made on first use. Those of Options.Resources are
// shared by all runs, and the caller closes them. Every run has Resources of its own
// above them, in Run.Resources, for one request; the loop closes these after the run.
//
// Make one with NewResources. It is safe for concurrent use.
type Resources struct {
	below *Resources // for types that are not bound here; may be nil

	mu       sync.Mutex // guards the fields below
	bindings map[reflect.Type]*binding
	made     []any // in the order in which they were made
	closed   bool
}

// A binding is the function that makes a resource, and the resource.
type binding struct {
	once  sync.Once
	make  func(ctx context.Context) (any, error)
	value any
	err   error
}

// NewResources returns Resources with nothing bound. below, if it is not nil, has the
// resources that are not bound here.
func NewResources(below *Resources) *Resources {
	return &Resources{below: below, bindings: make(map[reflect.Type]*binding)}
}

// Bind sets the function that makes the resource of type R, replacing an earlier
// binding and one below. The first Resource call calls it once, with its context. It
// may use other resources of r. An error is kept.
func Bind[R any](r *Resources, make func(ctx context.Context, r *Resources) (R, error)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bindings[reflect.TypeFor[R]()] = &binding{make: func(ctx context.Context) (any, error) { return make(ctx, r) }}
}

// Resource returns the resource of type R, and makes it on first use, which blocks.
// Codes: ErrNotFound if no R is bound; ErrClosed; errors of the bound function are
// returned unchanged.
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
// first. It does not close those below. Closing twice is fine.
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
