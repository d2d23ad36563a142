package faulty

import (
	"context"
	"errors"
	"iter"
	"sync"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// passThrough is a queue that passes every call on. A saboteur embeds it and overrides one
// method.
type passThrough struct {
	driver.Queue
	name    string
	wrapper *wrapper
}

// config returns the configuration that was asked for, with 0 where a setting is off.
func (q passThrough) config() driver.Config {
	return q.wrapper.askedFor(q.name)
}

// reconfigure changes the configuration of the wrapped queue behind the caller's back.
func (q passThrough) reconfigure(ctx context.Context, change func(*driver.Config)) error {
	config := q.config()
	change(&config)
	return q.wrapper.inner.(driver.Admin).ConfigureQueue(ctx, q.name, config.Effective())
}

// sendOne sends one message, as a batch of one.
func (q passThrough) sendOne(ctx context.Context, msg driver.Outgoing) (driver.Sent, error) {
	sent, err := q.Queue.Send(ctx, []driver.Outgoing{msg})
	if len(sent) != 1 {
		return driver.Sent{}, err
	}
	return sent[0], err
}

// sendEach sends a batch message by message.
func sendEach(msgs []driver.Outgoing, send func(driver.Outgoing) (driver.Sent, error)) ([]driver.Sent, error) {
	sent := make([]driver.Sent, 0, len(msgs))
	err := each(msgs, func(msg driver.Outgoing) error {
		result, err := send(msg)
		sent = append(sent, result)
		return err
	})
	if err != nil && !ofBatch(err) {
		return nil, err
	}
	return sent, err
}

// each calls do for each element of a batch and keeps the positions of those that fail.
func each[E any](batch []E, do func(E) error) error {
	errs := make([]error, len(batch))
	for i, element := range batch {
		err := do(element)
		if detail, ok := errors.AsType[*driver.Error](err); err != nil && !ofBatch(err) && (!ok || concernsCall(detail)) {
			return err
		}
		errs[i] = driver.At(err, 0)
	}
	return driver.NewBatchError(errs)
}

// eachExtension is each for extensions. It returns the granted durations.
func eachExtension(extensions []driver.Extension, do func(driver.Extension) ([]time.Duration, error)) ([]time.Duration, error) {
	granted := make([]time.Duration, 0, len(extensions))
	err := each(extensions, func(extension driver.Extension) error {
		got, err := do(extension)
		granted = append(granted, driver.GrantedAsAsked([]driver.Extension{{Visibility: first(got)}}, err)...)
		return err
	})
	if err != nil && !ofBatch(err) {
		return nil, err
	}
	return granted, err
}

// first returns the grant of a single extension, or 0 if it failed.
func first(granted []time.Duration) time.Duration {
	if len(granted) == 0 {
		return 0
	}
	return granted[0]
}

// extended returns the error of an extension.
func extended(_ []time.Duration, err error) error { return err }

// yieldToOthers splits an operation that should be atomic into two steps. In virtual time all
// goroutines at the same point run first.
func yieldToOthers() { <-time.After(time.Microsecond) }

func ofBatch(err error) bool {
	_, ok := errors.AsType[*driver.BatchError](err)
	return ok
}

// concernsCall reports whether the whole batch failed, not one position.
func concernsCall(e *driver.Error) bool {
	return e.Code == driver.ErrClosed || e.Code == driver.ErrNotFound || e.Code == driver.ErrUnavailable
}

// A backend has all interfaces of an opener.
type backend interface {
	driver.Opener
	driver.Admin
	driver.Pinger
	driver.Observable
	closer
}

type closer interface{ Close() error }

// A wrapper is an opener that passes every call on. spoil replaces each queue, rewrite changes
// each configuration, and onEnding changes each ending. Saboteurs of openers embed it.
type wrapper struct {
	inner    driver.Opener
	spoil    func(passThrough) driver.Queue
	rewrite  func(driver.Config) driver.Config
	onEnding func(driver.Ending) []driver.Ending

	mu    sync.Mutex               // guards the fields below
	asked map[string]driver.Config // before they were rewritten
	state map[string]any           // of each queue, see stateOf
}

func newWrapper(inner driver.Opener) *wrapper {
	return &wrapper{
		inner:    inner,
		spoil:    func(q passThrough) driver.Queue { return q },
		rewrite:  func(config driver.Config) driver.Config { return config },
		onEnding: func(ending driver.Ending) []driver.Ending { return []driver.Ending{ending} },
		asked:    make(map[string]driver.Config),
		state:    make(map[string]any),
	}
}

// perHandle replaces each handle with a faulty one.
func perHandle(spoil func(passThrough) driver.Queue) func(driver.Opener) driver.Opener {
	return func(inner driver.Opener) driver.Opener {
		b := newWrapper(inner)
		b.spoil = spoil
		return withAbilitiesOf(b, inner)
	}
}

// perQueue is perHandle with a state that all handles of a queue share. It starts as the zero
// M.
func perQueue[M any](spoil func(q passThrough, state *M) driver.Queue) func(driver.Opener) driver.Opener {
	return perHandle(func(q passThrough) driver.Queue { return spoil(q, stateOf[M](q.wrapper, q.name)) })
}

// stateOf returns the state that the handles of a queue share.
func stateOf[M any](b *wrapper, name string) *M {
	b.mu.Lock()
	defer b.mu.Unlock()
	if state, ok := b.state[name].(*M); ok {
		return state
	}
	state := new(M)
	b.state[name] = state
	return state
}

// changesConfig changes each configuration before the backend gets it.
func changesConfig(change func(*driver.Config)) func(driver.Opener) driver.Opener {
	return changesConfigAndHides(change, func(q passThrough) driver.Queue { return q })
}

// changesConfigAndHides is changesConfig for settings that would show in a handle.
func changesConfigAndHides(change func(*driver.Config), spoil func(passThrough) driver.Queue) func(driver.Opener) driver.Opener {
	return func(inner driver.Opener) driver.Opener {
		b := newWrapper(inner)
		b.spoil = spoil
		b.rewrite = func(config driver.Config) driver.Config { change(&config); return config }
		return withAbilitiesOf(b, inner)
	}
}

// perOpener replaces the opener.
func perOpener(spoil func(*wrapper) backend) func(driver.Opener) driver.Opener {
	return func(inner driver.Opener) driver.Opener { return withAbilitiesOf(spoil(newWrapper(inner)), inner) }
}

// withAbilitiesOf returns spoiled without the abilities that inner lacks. An inner that is
// Observable but lacks another ability loses Observable too.
func withAbilitiesOf(spoiled backend, inner driver.Opener) driver.Opener {
	_, manages := inner.(driver.Admin)
	_, pings := inner.(driver.Pinger)
	_, closes := inner.(closer)
	_, tells := inner.(driver.Observable)
	type (
		opener = driver.Opener
		admin  = driver.Admin
		pinger = driver.Pinger
	)
	switch {
	case manages && pings && closes && tells:
		return spoiled
	case manages && pings && closes:
		return struct {
			opener
			admin
			pinger
			closer
		}{spoiled, spoiled, spoiled, spoiled}
	case manages && pings:
		return struct {
			opener
			admin
			pinger
		}{spoiled, spoiled, spoiled}
	case manages && closes:
		return struct {
			opener
			admin
			closer
		}{spoiled, spoiled, spoiled}
	case pings && closes:
		return struct {
			opener
			pinger
			closer
		}{spoiled, spoiled, spoiled}
	case manages:
		return struct {
			opener
			admin
		}{spoiled, spoiled}
	case pings:
		return struct {
			opener
			pinger
		}{spoiled, spoiled}
	case closes:
		return struct {
			opener
			closer
		}{spoiled, spoiled}
	}
	return struct{ opener }{spoiled}
}

func (b *wrapper) OpenQueue(ctx context.Context, name string) (driver.Queue, error) {
	q, err := b.open(ctx, name)
	if err != nil {
		return nil, err
	}
	return b.spoil(q), nil
}

func (b *wrapper) open(ctx context.Context, name string) (passThrough, error) {
	queue, err := b.inner.OpenQueue(ctx, name)
	if err != nil {
		return passThrough{}, err
	}
	return passThrough{Queue: queue, name: name, wrapper: b}, nil
}

func (b *wrapper) ConfigureQueue(ctx context.Context, name string, config driver.Config) error {
	admin, told, asked := b.inner.(driver.Admin), config, config
	if config.Validate() == nil { // otherwise the backend refuses it
		asked = config.Resolve(b.inForce(ctx, name), driver.Config{}).Stored()
		told = b.rewrite(asked).Effective()
	}
	if err := admin.ConfigureQueue(ctx, name, told); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked[name] = asked
	return nil
}

// inForce returns the current configuration of a queue, or nil.
func (b *wrapper) inForce(ctx context.Context, name string) *driver.Config {
	config, err := b.QueueConfig(ctx, name)
	if err != nil {
		return nil
	}
	return &config
}

func (b *wrapper) QueueConfig(ctx context.Context, name string) (driver.Config, error) {
	config, err := b.inner.(driver.Admin).QueueConfig(ctx, name)
	b.mu.Lock()
	defer b.mu.Unlock()
	if asked, ok := b.asked[name]; ok && err == nil {
		return asked.Effective(), nil
	}
	return config, err
}

func (b *wrapper) Queues(ctx context.Context) iter.Seq2[string, error] {
	return b.inner.(driver.Admin).Queues(ctx)
}

func (b *wrapper) DeleteQueue(ctx context.Context, name string) error {
	err := b.inner.(driver.Admin).DeleteQueue(ctx, name)
	if err == nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.asked, name)
		delete(b.state, name)
	}
	return err
}

func (b *wrapper) Ping(ctx context.Context) error { return b.inner.(driver.Pinger).Ping(ctx) }

func (b *wrapper) Close() error { return b.inner.(closer).Close() }

// deliveries are all deliveries of a queue, by receipt.
type deliveries = table[driver.Receipt, driver.Delivery]

// remembersDeliveries keeps the deliveries, for saboteurs that need the message of a receipt.
type remembersDeliveries struct {
	passThrough
	delivered *deliveries
}

func (q remembersDeliveries) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	got, err := q.Queue.Receive(ctx, req)
	for _, d := range got {
		q.delivered.put(d.Receipt, d)
	}
	return got, err
}
