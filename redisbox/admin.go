package redisbox

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/redis/rueidis"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/redisbox/internal/shard"
)

// ConfigureQueue creates the queue or changes its configuration, which is in force in
// all processes from then on. Shards and StrictGroups are fixed when the queue is
// created. It blocks for a few round trips, and longer where a new limit makes many
// messages expire. Codes: ErrInvalid, ErrUnsupported, ErrUnavailable, ErrClosed, ErrFull
// (it does not exist, and the server is out of memory).
func (b *Backend) ConfigureQueue(ctx context.Context, name string, config driver.Config) error {
	return driver.Annotate(b.configure(ctx, name, config), name, "configure")
}

func (b *Backend) configure(ctx context.Context, name string, asked driver.Config) error {
	if err := b.checkOpen(ctx, name); err != nil {
		return err
	}
	var config driver.Config
	state := &shard.Opened{Status: "changed"}
	for state.Status == "changed" { // by another process since it was read
		existing, err := b.server.Look(ctx, name)
		if err != nil {
			return err
		}
		if config, err = b.resolve(name, asked, existing.Existing()); err != nil {
			return err
		}
		if err := b.prepare(ctx, name, config); err != nil {
			return err
		}
		if state, err = b.configureFirst(ctx, name, existing, config); err != nil {
			return err
		}
	}
	if state.Status == "fixed" {
		return fixed(state.Config, config)
	}
	if err := b.adopt(ctx, name, state); err != nil {
		return err
	}
	// The configuration is applied to existing messages before it is confirmed.
	q, _, err := b.join(name, state)
	if err != nil {
		return err
	}
	defer b.leave(q)
	if q.Settings.Load().Version < state.Version {
		q.Settings.Store(b.newSettings(state.Config, state.Version))
	}
	_, err = onShards(q, func(s *shard.Shard) (shard.Usage, error) { return q.usage(ctx, s, "0") })
	return err
}

// fixed returns the error that names the setting that cannot change.
func fixed(old, asked driver.Config) error {
	field, from, to := "Shards", any(max(old.Shards, 1)), any(max(asked.Shards, 1))
	if from == to {
		field, from, to = "StrictGroups", old.StrictGroups, asked.StrictGroups
	}
	return &driver.Error{
		Code: driver.ErrUnsupported, Field: field,
		Detail: fmt.Sprintf("cannot change from %v to %v on an existing queue; delete it first", from, to),
	}
}

// QueueConfig returns the configuration in force, with all defaults filled in. It blocks
// for a round trip. Codes: ErrNotFound, ErrInvalid, ErrUnavailable, ErrClosed.
func (b *Backend) QueueConfig(ctx context.Context, name string) (driver.Config, error) {
	if err := b.checkOpen(ctx, name); err != nil {
		return driver.Config{}, driver.Annotate(err, name, "configure")
	}
	state, err := b.server.Look(ctx, name)
	if err == nil && state.Status != "ok" {
		err = &driver.Error{Code: driver.ErrNotFound}
	}
	if err != nil {
		return driver.Config{}, driver.Annotate(err, name, "configure")
	}
	return state.Config.Effective(), nil
}

// Queues lists the names of all queues, in order. It blocks for a round trip per hundred
// names or so. Codes: ErrUnavailable, ErrClosed.
func (b *Backend) Queues(ctx context.Context) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		b.mu.Lock()
		closed := b.closed
		b.mu.Unlock()
		if closed {
			yield("", &driver.Error{Code: driver.ErrClosed, Op: "queues"})
			return
		}
		names, err := b.names(ctx)
		if err != nil {
			yield("", driver.Annotate(err, "", "queues"))
			return
		}
		for page := range slices.Chunk(names, namesPage) {
			there, err := b.there(ctx, page)
			if err != nil {
				yield("", driver.Annotate(err, "", "queues"))
				return
			}
			for i, name := range page {
				if there[i] && !yield(name, nil) {
					return
				}
			}
		}
	}
}

const namesPage = 128

// names reads the registry, in order. Some of the queues may not exist.
func (b *Backend) names(ctx context.Context) (names []string, err error) {
	for cursor := uint64(0); ; {
		page, err := shard.Request(ctx, b.server, func(ctx context.Context) (rueidis.ScanEntry, error) {
			return b.server.Client.Do(ctx, b.server.Client.B().Sscan().Key(shard.Registry(b.options.Prefix)).Cursor(cursor).Count(1000).Build()).AsScanEntry()
		})
		if err != nil {
			return nil, err
		}
		names, cursor = append(names, page.Elements...), page.Cursor
		if cursor == 0 {
			slices.Sort(names)
			return slices.Compact(names), nil
		}
	}
}

// there reports which of these queues exist.
func (b *Backend) there(ctx context.Context, names []string) ([]bool, error) {
	return shard.Request(ctx, b.server, func(ctx context.Context) ([]bool, error) {
		commands := make([]rueidis.Completed, len(names))
		for i, name := range names {
			commands[i] = b.server.Client.B().Hexists().Key(shard.Keys(b.options.Prefix, name, 0)[0]).Field("settings").Build()
		}
		there := make([]bool, len(names))
		for i, result := range b.server.Client.DoMulti(ctx, commands...) {
			found, err := result.AsBool()
			if err != nil {
				return nil, err
			}
			there[i] = found
		}
		return there, nil
	})
}

// DeleteQueue removes a queue with all its messages. Handles on it, in any process,
// return ErrNotFound from then on. It blocks for a few round trips. Codes: ErrNotFound,
// ErrInvalid, ErrUnavailable, ErrClosed.
func (b *Backend) DeleteQueue(ctx context.Context, name string) error {
	if err := b.checkOpen(ctx, name); err != nil {
		return driver.Annotate(err, name, "delete")
	}
	state, err := b.server.Look(ctx, name)
	if err == nil && state.Status == "missing" {
		err = &driver.Error{Code: driver.ErrNotFound}
	}
	if err == nil {
		err = b.remove(ctx, name, state)
	}
	return driver.Annotate(err, name, "delete")
}

// remove deletes a queue. If it has several shards, it marks the first, deletes the
// others, and then the first, so that an unfinished deletion can be recognized.
func (b *Backend) remove(ctx context.Context, name string, state *shard.Opened) error {
	incarnation := state.Incarnation
	if state.Status == "deleting" {
		incarnation = incarnation[:len(incarnation)-1]
	}
	n := max(state.Config.Shards, 1)
	if n > 1 {
		if err := b.server.DeleteShard(ctx, name, 0, "m", incarnation); err != nil {
			return err
		}
		for i := 1; i < n; i++ {
			if err := b.server.DeleteShard(ctx, name, i, "d", incarnation); err != nil && !errors.Is(err, driver.ErrNotFound) {
				return err
			}
		}
	}
	if err := b.server.DeleteShard(ctx, name, 0, "d", incarnation); err != nil {
		return err
	}
	b.mu.Lock()
	if q := b.queues[name]; q != nil && q.Incarnation == incarnation {
		q.end(driver.ErrNotFound)
		delete(b.queues, name)
	}
	b.mu.Unlock()
	return b.unlist(ctx, name)
}

// unlist removes a name from the registry, and puts it back if the queue has been
// created again meanwhile.
func (b *Backend) unlist(ctx context.Context, name string) error {
	_, err := shard.Request(ctx, b.server, func(ctx context.Context) (int64, error) {
		return b.server.Client.Do(ctx, b.server.Client.B().Srem().Key(shard.Registry(b.options.Prefix)).Member(name).Build()).AsInt64()
	})
	if err != nil {
		return err
	}
	state, err := b.server.Look(ctx, name)
	if err != nil || state.Status == "missing" {
		return err
	}
	return b.prepare(ctx, name, driver.Config{})
}

// resolve returns the configuration to store for a queue when config is asked for.
// existing is the one in force, or nil.
func (b *Backend) resolve(name string, config driver.Config, existing *driver.Config) (driver.Config, error) {
	for _, given := range []driver.Config{config, b.options.Defaults} {
		if err := given.Validate(); err != nil {
			return config, err
		}
	}
	config = config.Resolve(existing, b.options.Defaults).Stored()
	return config, checkConfig(name, config)
}

// checkConfig refuses settings that no queue of this name can honour.
func checkConfig(name string, config driver.Config) error {
	invalid := func(field, detail string) error {
		return &driver.Error{Code: driver.ErrInvalid, Op: "configure", Queue: name, Field: field, Detail: detail}
	}
	if config.FairGroups {
		return &driver.Error{
			Code: driver.ErrUnsupported, Op: "configure", Queue: name, Field: "FairGroups",
			Detail: "queues in Redis have one order for all groups",
		}
	}
	if config.GroupLimits != "" {
		return &driver.Error{
			Code: driver.ErrUnsupported, Op: "configure", Queue: name, Field: "GroupLimits",
			Detail: "groups in Redis have no limits",
		}
	}
	shards := max(config.Shards, 1)
	for _, bound := range shard.Bounds(&config) {
		if value := *bound.Value; value > 0 && value < shards {
			return invalid(bound.Field, fmt.Sprintf("%d cannot be split over %d shards; use at least 1 a shard", value, shards))
		}
	}
	return nil
}
