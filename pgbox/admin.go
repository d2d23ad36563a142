package pgbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"

	"github.com/jackc/pgx/v5"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/ident"
)

// stored is a queue as the database has it.
type stored struct {
	qid         int32
	incarnation string
	version     int64
	config      driver.Config // as driver.Config.Stored returns it
}

// look returns the queue called name, or nil.
func (b *Backend) look(ctx context.Context, name string) (found *stored, err error) {
	err = b.query(ctx, "SELECT qid, incarnation, version, config FROM mailbox.queue WHERE name = $1", []any{name}, func(rows pgx.Rows) error {
		var s stored
		var text []byte
		if err := rows.Scan(&s.qid, &s.incarnation, &s.version, &text); err != nil {
			return err
		}
		found = &s
		return json.Unmarshal(text, &s.config)
	})
	return found, err
}

// ConfigureQueue creates the queue or changes its configuration, which is in force in all
// processes from then on. Shards, StrictGroups and FairGroups are fixed when the queue is created. It
// blocks for a few round trips, and longer where a new limit makes many messages expire, or many groups get other limits. Codes:
// ErrInvalid, ErrUnsupported, ErrUnavailable, ErrClosed.
func (b *Backend) ConfigureQueue(ctx context.Context, name string, config driver.Config) error {
	return driver.Annotate(b.configureQueue(ctx, name, config), name, "configure")
}

func (b *Backend) configureQueue(ctx context.Context, name string, asked driver.Config) error {
	if err := b.checkOpen(ctx, name); err != nil {
		return err
	}
	for done := false; !done; { // until no other process changes it between
		existing, err := b.look(ctx, name)
		if err != nil {
			return err
		}
		if done, err = b.configure(ctx, name, asked, existing); err != nil {
			return err
		}
	}
	// The configuration is applied to the messages before it is confirmed.
	found, err := b.look(ctx, name)
	if err != nil || found == nil {
		return err
	}
	q, err := b.join(name, found)
	if err != nil {
		return err
	}
	defer b.leave(q)
	q.keyRoom.Store(0)
	_, err = q.usage(ctx, false)
	q.changed(ctx, q.waiters.Len())
	return err
}

// configure stores a configuration. It reports false if the queue has changed since existing,
// which may be nil, was read.
func (b *Backend) configure(ctx context.Context, name string, asked driver.Config, existing *stored) (done bool, err error) {
	config, version, incarnation := driver.Config{}, int64(0), newIncarnation()
	if existing == nil {
		config, err = b.resolve(name, asked, nil)
	} else {
		version, incarnation = existing.version, existing.incarnation
		config, err = b.resolve(name, asked, &existing.config)
	}
	if err != nil {
		return false, err
	}
	if existing != nil {
		if err := checkFixed(existing.config, config); err != nil {
			return false, err
		}
	}
	if to := config.DeadLetterTo; to != "" && to != name {
		if err := b.prepareTarget(ctx, to); err != nil {
			return false, err
		}
	}
	text, err := json.Marshal(config)
	if err != nil {
		return false, err
	}
	effective := config.Effective()
	numbers := []int64{
		int64(max(config.Shards, 1)), int64(config.MaxDeliveries), int64(config.MaxMessages), int64(config.MaxBytes), int64(config.MaxInFlight),
		int64(config.MaxDead), micros(config.MaxHold), max(micros(effective.DedupWindow), 0), max(int64(effective.DedupMax), 0),
		micros(config.RetainReady.Age), int64(config.RetainReady.Count), micros(config.RetainDead.Age), int64(config.RetainDead.Count),
		micros(config.TTL), max(micros(effective.PriorityAging), 0),
	}
	groups, limits := limitColumns(config)
	r := request{
		sql:  b.sql("SELECT mailbox.configure_limited($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)"),
		args: []any{name, version, incarnation, text, config.StrictGroups, config.DropExpired, config.DeadLetterTo, numbers, config.FairGroups, groups, limits},
		wide: -1, repeatable: true,
	}
	return done, b.call(ctx, r, one(&done))
}

// prepareTarget creates the queue that dead letters go to, if it does not exist.
func (b *Backend) prepareTarget(ctx context.Context, name string) error {
	found, err := b.look(ctx, name)
	if err != nil || found != nil {
		return err
	}
	config := b.options.Defaults
	config.DeadLetterTo = ""
	_, err = b.configure(ctx, name, config, nil)
	return err
}

// newIncarnation returns a text that no other queue has.
func newIncarnation() string { return fmt.Sprintf("%016x", ident.Nonce()) }

// checkFixed refuses changes of what cannot change.
func checkFixed(old, asked driver.Config) error {
	for _, setting := range []struct {
		field    string
		from, to any
	}{
		{"Shards", max(old.Shards, 1), max(asked.Shards, 1)}, {"StrictGroups", old.StrictGroups, asked.StrictGroups},
		{"FairGroups", old.FairGroups, asked.FairGroups},
	} {
		if setting.from != setting.to {
			return &driver.Error{
				Code: driver.ErrUnsupported, Field: setting.field,
				Detail: fmt.Sprintf("cannot change from %v to %v on an existing queue; delete it first", setting.from, setting.to),
			}
		}
	}
	return nil
}

// resolve returns the configuration to store for a queue when config is asked for. existing is
// the one in force, or nil.
func (b *Backend) resolve(name string, config driver.Config, existing *driver.Config) (driver.Config, error) {
	if err := config.Validate(); err != nil {
		return config, err
	}
	config = config.Resolve(existing, b.options.Defaults).Stored()
	shards := max(config.Shards, 1)
	for field, value := range map[string]int{
		"MaxMessages": config.MaxMessages, "MaxBytes": config.MaxBytes, "MaxInFlight": config.MaxInFlight, "MaxDead": config.MaxDead,
		"RetainReady.Count": config.RetainReady.Count, "RetainDead.Count": config.RetainDead.Count,
	} {
		if value > 0 && value < shards {
			return config, &driver.Error{
				Code: driver.ErrInvalid, Op: "configure", Queue: name, Field: field,
				Detail: fmt.Sprintf("%d cannot be split over %d shards; use at least 1 a shard", value, shards),
			}
		}
	}
	return config, nil
}

// QueueConfig returns the configuration in force, with all defaults filled in. It blocks for a
// round trip. Codes: ErrNotFound, ErrInvalid, ErrUnavailable, ErrClosed.
func (b *Backend) QueueConfig(ctx context.Context, name string) (driver.Config, error) {
	err := b.checkOpen(ctx, name)
	var found *stored
	if err == nil {
		found, err = b.look(ctx, name)
	}
	if err == nil && found == nil {
		err = &driver.Error{Code: driver.ErrNotFound}
	}
	if err != nil {
		return driver.Config{}, driver.Annotate(err, name, "configure")
	}
	return found.config.Effective(), nil
}

// Queues lists the names of all queues, in order. It blocks for a round trip per 256 names.
// Codes: ErrUnavailable, ErrClosed.
func (b *Backend) Queues(ctx context.Context) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for last := ""; ; {
			var names []string
			err := b.checkClosed()
			if err == nil {
				err = b.call(ctx, request{
					sql:  b.sql("SELECT name FROM mailbox.queue WHERE name > $1 ORDER BY name LIMIT $2"),
					args: []any{last, int32(page)}, wide: -1, repeatable: true,
				}, readTexts(&names))
			}
			if err != nil {
				yield("", driver.Annotate(err, "", "queues"))
				return
			}
			for _, name := range names {
				if !yield(name, nil) {
					return
				}
			}
			if len(names) < page {
				return
			}
			last = names[len(names)-1]
		}
	}
}

// readTexts reads rows of one text each.
func readTexts(texts *[]string) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		*texts = nil
		for rows.Next() {
			var text string
			if err := rows.Scan(&text); err != nil {
				return err
			}
			*texts = append(*texts, text)
		}
		return nil
	}
}

// DeleteQueue removes a queue with all its messages, in one transaction. Handles on it, in any
// process, return ErrNotFound from then on. Codes: ErrNotFound, ErrInvalid, ErrUnavailable,
// ErrClosed.
func (b *Backend) DeleteQueue(ctx context.Context, name string) error {
	err := b.checkOpen(ctx, name)
	there := false
	if err == nil {
		err = b.call(ctx, request{sql: b.sql("SELECT mailbox.delete_queue($1)"), args: []any{name}, wide: -1}, one(&there))
	}
	if err == nil && !there {
		err = &driver.Error{Code: driver.ErrNotFound}
	}
	if err != nil && !errors.Is(err, driver.ErrNotFound) {
		return driver.Annotate(err, name, "delete")
	}
	b.mu.Lock()
	q := b.queues[name]
	b.mu.Unlock()
	if q != nil && there {
		q.gone()
		b.notices.announce(ctx, q.qid)
	}
	return driver.Annotate(err, name, "delete")
}
