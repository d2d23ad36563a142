package faulty

import (
	"context"
	"errors"
	"iter"
	"sync"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// A handle is what a saboteur makes of a queue.
type handle = driver.Queue

// passing is a queue that passes everything on. A saboteur embeds it and
// overrides the method it spoils.
type passing struct {
	driver.Queue
	name string
	box  *box
}

// config is the configuration that was asked for, with 0 where a setting is off.
func (q passing) config() driver.Config {
	return q.box.askedFor(q.name)
}

// reconfigure changes the queue behind, and nobody is told.
func (q passing) reconfigure(ctx context.Context, change func(*driver.Config)) error {
	config := q.config()
	change(&config)
	return q.box.inner.(driver.Admin).ConfigureQueue(ctx, q.name, config.Effective())
}

// sendOne sends one message, as a batch of one.
func (q passing) sendOne(ctx context.Context, msg driver.Outgoing) (driver.Sent, error) {
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

// each does a batch element by element, and keeps the positions of what fails.
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

// eachExtension is each for extensions, and collects what they are granted.
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

// first is the only grant of an extension, and 0 if it failed.
func first(granted []time.Duration) time.Duration {
	if len(granted) == 0 {
		return 0
	}
	return granted[0]
}

// extended is the error of an extension.
func extended(_ []time.Duration, err error) error { return err }

// letOthersIn is where an operation that ought to be one step is two. In
// virtual time all others that are at the same point get there first.
func letOthersIn() { <-time.After(time.Microsecond) }

func ofBatch(err error) bool {
	_, ok := errors.AsType[*driver.BatchError](err)
	return ok
}

// concernsCall reports whether the whole batch failed, and not one position.
func concernsCall(e *driver.Error) bool {
	return e.Code == driver.ErrClosed || e.Code == driver.ErrNotFound || e.Code == driver.ErrUnavailable
}

// A backend is everything an opener can be asked.
type backend interface {
	driver.Opener
	driver.Admin
	driver.Pinger
	driver.Observable
	closer
}

type closer interface{ Close() error }

// A box is an opener that passes everything on, except that spoil may do
// something to each handle, and rewrite to each configuration. Saboteurs of
// openers embed it.
type box struct {
	inner   driver.Opener
	spoil   func(passing) handle
	rewrite func(driver.Config) driver.Config
	hear    func(driver.Ending) []driver.Ending

	mu     sync.Mutex               // guards the fields below
	asked  map[string]driver.Config // before they were rewritten
	memory map[string]any           // of each queue, see memoryOf
}

func newBox(inner driver.Opener) *box {
	return &box{
		inner:   inner,
		spoil:   func(q passing) handle { return q },
		rewrite: func(config driver.Config) driver.Config { return config },
		hear:    func(ending driver.Ending) []driver.Ending { return []driver.Ending{ending} },
		asked:   make(map[string]driver.Config),
		memory:  make(map[string]any),
	}
}

// perHandle spoils each handle by itself.
func perHandle(spoil func(passing) handle) func(driver.Opener) driver.Opener {
	return func(inner driver.Opener) driver.Opener {
		b := newBox(inner)
		b.spoil = spoil
		return exposed(b, inner)
	}
}

// perQueue spoils each handle; those on one queue share a memory that starts
// out as the zero M.
func perQueue[M any](spoil func(q passing, memory *M) handle) func(driver.Opener) driver.Opener {
	return perHandle(func(q passing) handle { return spoil(q, memoryOf[M](q.box, q.name)) })
}

// memoryOf returns what the handles on one queue share.
func memoryOf[M any](b *box, name string) *M {
	b.mu.Lock()
	defer b.mu.Unlock()
	if memory, ok := b.memory[name].(*M); ok {
		return memory
	}
	memory := new(M)
	b.memory[name] = memory
	return memory
}

// misreads spoils what the backend is told of each configuration.
func misreads(change func(*driver.Config)) func(driver.Opener) driver.Opener {
	return misreadsAndHides(change, func(q passing) handle { return q })
}

// misreadsAndHides is misreads for settings that would show in a handle.
func misreadsAndHides(change func(*driver.Config), spoil func(passing) handle) func(driver.Opener) driver.Opener {
	return func(inner driver.Opener) driver.Opener {
		b := newBox(inner)
		b.spoil = spoil
		b.rewrite = func(config driver.Config) driver.Config { change(&config); return config }
		return exposed(b, inner)
	}
}

// perOpener spoils the opener itself.
func perOpener(spoil func(*box) backend) func(driver.Opener) driver.Opener {
	return func(inner driver.Opener) driver.Opener { return exposed(spoil(newBox(inner)), inner) }
}

// exposed returns spoiled without the abilities that inner does not have. Of one
// that tells of endings and lacks another ability, that is not shown.
func exposed(spoiled backend, inner driver.Opener) driver.Opener {
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

func (b *box) OpenQueue(ctx context.Context, name string) (driver.Queue, error) {
	q, err := b.open(ctx, name)
	if err != nil {
		return nil, err
	}
	return b.spoil(q), nil
}

func (b *box) open(ctx context.Context, name string) (passing, error) {
	queue, err := b.inner.OpenQueue(ctx, name)
	if err != nil {
		return passing{}, err
	}
	return passing{Queue: queue, name: name, box: b}, nil
}

func (b *box) ConfigureQueue(ctx context.Context, name string, config driver.Config) error {
	admin, told, asked := b.inner.(driver.Admin), config, config
	if config.Validate() == nil { // else let the backend refuse it as it is
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

// inForce is the configuration that a queue claims to have, or nil.
func (b *box) inForce(ctx context.Context, name string) *driver.Config {
	config, err := b.QueueConfig(ctx, name)
	if err != nil {
		return nil
	}
	return &config
}

func (b *box) QueueConfig(ctx context.Context, name string) (driver.Config, error) {
	config, err := b.inner.(driver.Admin).QueueConfig(ctx, name)
	b.mu.Lock()
	defer b.mu.Unlock()
	if asked, ok := b.asked[name]; ok && err == nil {
		return asked.Effective(), nil
	}
	return config, err
}

func (b *box) Queues(ctx context.Context) iter.Seq2[string, error] {
	return b.inner.(driver.Admin).Queues(ctx)
}

func (b *box) DeleteQueue(ctx context.Context, name string) error {
	err := b.inner.(driver.Admin).DeleteQueue(ctx, name)
	if err == nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.asked, name)
		delete(b.memory, name)
	}
	return err
}

func (b *box) Ping(ctx context.Context) error { return b.inner.(driver.Pinger).Ping(ctx) }

func (b *box) Close() error { return b.inner.(closer).Close() }
