package redisbox

import (
	"log/slog"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/opening"
	"github.com/mailboxmq/mailbox/redisbox/internal/shard"
)

// Options configure a Backend. The zero value, and nil, mean the defaults.
type Options struct {
	// Prefix is the beginning of all keys, so that programs can share a server. It
	// cannot contain braces.
	Prefix string
	// Defaults is the configuration of queues that are opened without having been
	// configured, and the default of settings that a new queue's configuration leaves
	// unset.
	Defaults driver.Config
	// MaxBodyBytes bounds bodies; 0 means driver.DefaultMaxBodyBytes.
	MaxBodyBytes int

	// Replicas is how many replicas must have a send, an ack, a nack, a dead letter or
	// a change of a queue before it is confirmed. A call that they do not confirm within
	// ReplicaTimeout is ErrUnavailable: it may be done, and may be lost in a failover.
	// Ask for all replicas of a primary if no message may be lost: any of them may be
	// the next primary. 0 means that the primary alone confirms.
	Replicas int
	// ReplicaTimeout is how long to wait for the replicas; 0 means one second.
	ReplicaTimeout time.Duration

	// RetryFor is how long an operation is repeated when the connection is lost, the
	// server is loading or being replaced, or a slot moves; then it is ErrUnavailable.
	// A repeated operation takes effect once. 0 means ten seconds.
	RetryFor time.Duration

	// Strict makes Open refuse servers that would lose messages: those that evict keys
	// when memory is short, and those without persistence. Otherwise Open logs a
	// warning, and Traits.Durability is lower.
	Strict bool

	// Logger gets warnings and errors. Nil means none are logged.
	Logger *slog.Logger
}

// check refuses options that no backend can honour.
func (o *Options) check() error {
	for _, option := range []struct {
		field string
		value int64
	}{
		{"MaxBodyBytes", int64(o.MaxBodyBytes)},
		{"Replicas", int64(o.Replicas)},
		{"ReplicaTimeout", int64(o.ReplicaTimeout)},
		{"RetryFor", int64(o.RetryFor)},
	} {
		if err := opening.CheckOption(option.field, option.value); err != nil {
			return err
		}
	}
	if err := o.Defaults.Validate(); err != nil {
		return err
	}
	return shard.CheckPrefix(o.Prefix)
}

func (o *Options) withDefaults() Options {
	var filled Options
	if o != nil {
		filled = *o
	}
	if filled.MaxBodyBytes == 0 {
		filled.MaxBodyBytes = driver.DefaultMaxBodyBytes
	}
	if filled.ReplicaTimeout == 0 {
		filled.ReplicaTimeout = time.Second
	}
	if filled.RetryFor == 0 {
		filled.RetryFor = 10 * time.Second
	}
	if filled.Logger == nil {
		filled.Logger = slog.New(slog.DiscardHandler)
	}
	return filled
}
