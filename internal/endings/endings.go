// Package endings keeps the observers of a backend's endings, for every backend
// that is a driver.Observable.
package endings

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/mailboxmq/mailbox/driver"
)

// Observers are functions that hear of endings. The zero value has none. It is
// safe for concurrent use.
type Observers struct {
	mu  sync.Mutex // held while all changes
	all atomic.Pointer[[]*observer]
}

type observer struct{ hear func(driver.Ending) }

// Add adds an observer; remove removes it.
func (o *Observers) Add(f func(driver.Ending)) (remove func()) {
	added := &observer{f}
	o.change(func(all []*observer) []*observer { return append(all, added) })
	return func() {
		o.change(func(all []*observer) []*observer {
			return slices.DeleteFunc(all, func(other *observer) bool { return other == added })
		})
	}
}

func (o *Observers) change(change func([]*observer) []*observer) {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := change(slices.Clone(o.list()))
	o.all.Store(&all)
}

func (o *Observers) list() []*observer {
	if all := o.all.Load(); all != nil {
		return *all
	}
	return nil
}

// Any reports whether there are observers.
func (o *Observers) Any() bool { return len(o.list()) > 0 }

// Tell calls every observer.
func (o *Observers) Tell(ending driver.Ending) {
	for _, observer := range o.list() {
		observer.hear(ending)
	}
}
