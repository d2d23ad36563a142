// Package computer describes the machine that a store runs on, so that a simulation can bring
// one of its own.
package computer

import (
	"context"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// A Computer has files and clocks.
type Computer struct {
	FS vfs.FS
	// Boot identifies the time since it was last switched on, and Uptime measures it.
	Boot   func() string
	Uptime func() time.Duration
	Wall   func() time.Time
}

type key struct{}

// With returns a context in which stores are opened on c.
func With(ctx context.Context, c Computer) context.Context { return context.WithValue(ctx, key{}, c) }

// From returns the computer of a context. ok is false if it is the one that the process runs on.
func From(ctx context.Context) (c Computer, ok bool) {
	c, ok = ctx.Value(key{}).(Computer)
	return c, ok
}
