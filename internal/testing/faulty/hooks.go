package faulty

import (
	"context"
	"iter"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// hooks are the functions that a saboteur replaces. A nil hook passes the call on.
type hooks struct {
	// Of a queue. They get the queue that they spoil, whose methods have no fault.
	only        func(*queue) bool // if set, other queues have no fault
	send        sendFunc
	receive     receiveFunc
	ack         settleFunc[driver.Receipt]
	ackLate     settleFunc[driver.Receipt]
	nack        settleFunc[driver.Nack]
	extend      extendFunc
	extendLate  settleFunc[driver.Extension]
	deadLetter  settleFunc[driver.DeadLetterRequest]
	deadLetters func(*queue, context.Context) iter.Seq2[driver.DeadLetter, error]
	redrive     func(q *queue, ctx context.Context, ids []string, limit int) (int, error)
	discard     func(q *queue, ctx context.Context, ids []string) (int, error)
	move        func(q *queue, ctx context.Context, to string, limit int) (int, error)
	purge       func(*queue, context.Context) (int, error)
	purgeDead   func(*queue, context.Context) (int, error)
	forgetDedup func(*queue, context.Context) error
	throttle    func(*queue, context.Context, string, time.Duration) error
	pause       func(*queue, context.Context) error
	resume      func(*queue, context.Context) error
	edit        editFunc
	fire        fireFunc
	schedules   func(q *queue, ctx context.Context, name string) iter.Seq2[driver.Schedule, error]
	peek        peekFunc
	stats       func(*queue, context.Context) (driver.Stats, error)
	usage       func(*queue, context.Context) (driver.Usage, error)
	traits      func(*queue) driver.Traits
	opened      func(*queue) // called with each new handle
	close       func(*queue) error

	// Of a backend.
	config      func(*driver.Config)     // changes each configuration, which is still read back as it was
	rename      func(name string) string // before a queue is opened
	beforeOpen  func(b *wrapper, ctx context.Context, name string) error
	configure   func(b *wrapper, ctx context.Context, name string, config driver.Config) error
	queueConfig func(b *wrapper, ctx context.Context, name string) (driver.Config, error)
	queues      func(*wrapper, context.Context) iter.Seq2[string, error]
	scheduled   func(*wrapper, context.Context) iter.Seq2[driver.ScheduledQueue, error]
	deleteQueue func(b *wrapper, ctx context.Context, name string) error
	ping        func(*wrapper, context.Context) error
	shut        func(*wrapper) error // Close
	ending      func(*wrapper, driver.Ending) []driver.Ending
}

type (
	sendFunc    = func(q *queue, ctx context.Context, msgs []driver.Outgoing) ([]driver.Sent, error)
	receiveFunc = func(q *queue, ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error)
	extendFunc  = func(q *queue, ctx context.Context, extensions []driver.Extension) ([]time.Duration, error)
	editFunc    = func(q *queue, ctx context.Context, id string, edit driver.Edit) (driver.State, error)
	fireFunc    = func(q *queue, ctx context.Context, firing driver.Firing) (driver.Schedule, bool, error)
	peekFunc    = func(q *queue, ctx context.Context, query driver.Query) iter.Seq2[driver.Peeked, error]

	settleFunc[E any] = func(q *queue, ctx context.Context, batch []E) error
)

// or returns hook, or pass if there is none.
func or[F any](hook, pass F, isSet bool) F {
	if isSet {
		return hook
	}
	return pass
}

// A hookedQueue is a queue with the hooks of a saboteur.
type hookedQueue struct{ q *queue }

// on returns the hooks that apply to the queue.
func (h hookedQueue) on() *hooks {
	if on := h.q.wrapper.on; on.only == nil || on.only(h.q) {
		return on
	}
	return new(hooks)
}

func (h hookedQueue) Send(ctx context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
	return or(h.on().send, (*queue).Send, h.on().send != nil)(h.q, ctx, msgs)
}

func (h hookedQueue) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	got, err := or(h.on().receive, (*queue).Receive, h.on().receive != nil)(h.q, ctx, req)
	h.q.note(got)
	return got, err
}

func (h hookedQueue) Ack(ctx context.Context, receipts []driver.Receipt) error {
	return or(h.on().ack, (*queue).Ack, h.on().ack != nil)(h.q, ctx, receipts)
}

func (h hookedQueue) AckLate(ctx context.Context, receipts []driver.Receipt) error {
	return or(h.on().ackLate, (*queue).AckLate, h.on().ackLate != nil)(h.q, ctx, receipts)
}

func (h hookedQueue) Nack(ctx context.Context, nacks []driver.Nack) error {
	return or(h.on().nack, (*queue).Nack, h.on().nack != nil)(h.q, ctx, nacks)
}

func (h hookedQueue) Extend(ctx context.Context, extensions []driver.Extension) ([]time.Duration, error) {
	return or(h.on().extend, (*queue).Extend, h.on().extend != nil)(h.q, ctx, extensions)
}

func (h hookedQueue) ExtendLate(ctx context.Context, extensions []driver.Extension) error {
	return or(h.on().extendLate, (*queue).ExtendLate, h.on().extendLate != nil)(h.q, ctx, extensions)
}

func (h hookedQueue) DeadLetter(ctx context.Context, requests []driver.DeadLetterRequest) error {
	return or(h.on().deadLetter, (*queue).DeadLetter, h.on().deadLetter != nil)(h.q, ctx, requests)
}

func (h hookedQueue) DeadLetters(ctx context.Context) iter.Seq2[driver.DeadLetter, error] {
	return or(h.on().deadLetters, (*queue).DeadLetters, h.on().deadLetters != nil)(h.q, ctx)
}

func (h hookedQueue) Redrive(ctx context.Context, ids []string, limit int) (int, error) {
	return or(h.on().redrive, (*queue).Redrive, h.on().redrive != nil)(h.q, ctx, ids, limit)
}

func (h hookedQueue) Discard(ctx context.Context, ids []string) (int, error) {
	return or(h.on().discard, (*queue).Discard, h.on().discard != nil)(h.q, ctx, ids)
}

func (h hookedQueue) Move(ctx context.Context, to string, limit int) (int, error) {
	return or(h.on().move, (*queue).Move, h.on().move != nil)(h.q, ctx, to, limit)
}

func (h hookedQueue) Purge(ctx context.Context) (int, error) {
	return or(h.on().purge, (*queue).Purge, h.on().purge != nil)(h.q, ctx)
}

func (h hookedQueue) PurgeDead(ctx context.Context) (int, error) {
	return or(h.on().purgeDead, (*queue).PurgeDead, h.on().purgeDead != nil)(h.q, ctx)
}

func (h hookedQueue) ForgetDedup(ctx context.Context) error {
	return or(h.on().forgetDedup, (*queue).ForgetDedup, h.on().forgetDedup != nil)(h.q, ctx)
}

func (h hookedQueue) Throttle(ctx context.Context, group string, wait time.Duration) error {
	return or(h.on().throttle, (*queue).Throttle, h.on().throttle != nil)(h.q, ctx, group, wait)
}

func (h hookedQueue) Pause(ctx context.Context) error {
	return or(h.on().pause, (*queue).Pause, h.on().pause != nil)(h.q, ctx)
}

func (h hookedQueue) Resume(ctx context.Context) error {
	return or(h.on().resume, (*queue).Resume, h.on().resume != nil)(h.q, ctx)
}

func (h hookedQueue) Fire(ctx context.Context, firing driver.Firing) (driver.Schedule, bool, error) {
	return or(h.on().fire, (*queue).Fire, h.on().fire != nil)(h.q, ctx, firing)
}

func (h hookedQueue) Schedules(ctx context.Context, name string) iter.Seq2[driver.Schedule, error] {
	return or(h.on().schedules, (*queue).Schedules, h.on().schedules != nil)(h.q, ctx, name)
}

func (h hookedQueue) Edit(ctx context.Context, id string, edit driver.Edit) (driver.State, error) {
	return or(h.on().edit, (*queue).Edit, h.on().edit != nil)(h.q, ctx, id, edit)
}

func (h hookedQueue) Peek(ctx context.Context, query driver.Query) iter.Seq2[driver.Peeked, error] {
	return or(h.on().peek, (*queue).Peek, h.on().peek != nil)(h.q, ctx, query)
}

func (h hookedQueue) Stats(ctx context.Context) (driver.Stats, error) {
	return or(h.on().stats, (*queue).Stats, h.on().stats != nil)(h.q, ctx)
}

func (h hookedQueue) Usage(ctx context.Context) (driver.Usage, error) {
	return or(h.on().usage, (*queue).Usage, h.on().usage != nil)(h.q, ctx)
}

func (h hookedQueue) Traits() driver.Traits {
	return or(h.on().traits, (*queue).Traits, h.on().traits != nil)(h.q)
}

func (h hookedQueue) Close() error {
	return or(h.on().close, (*queue).Close, h.on().close != nil)(h.q)
}

func (h hookedQueue) Identity() string { return h.q.Identity() }

// A hookedBackend is a backend with the hooks of a saboteur.
type hookedBackend struct{ *wrapper }

func (h hookedBackend) OpenQueue(ctx context.Context, name string) (driver.Queue, error) {
	if h.on.rename != nil {
		name = h.on.rename(name)
	}
	if h.on.beforeOpen != nil {
		if err := h.on.beforeOpen(h.wrapper, ctx, name); err != nil {
			return nil, err
		}
	}
	return h.wrapper.OpenQueue(ctx, name)
}

func (h hookedBackend) ConfigureQueue(ctx context.Context, name string, config driver.Config) error {
	return or(h.on.configure, (*wrapper).ConfigureQueue, h.on.configure != nil)(h.wrapper, ctx, name, config)
}

func (h hookedBackend) QueueConfig(ctx context.Context, name string) (driver.Config, error) {
	return or(h.on.queueConfig, (*wrapper).QueueConfig, h.on.queueConfig != nil)(h.wrapper, ctx, name)
}

func (h hookedBackend) Queues(ctx context.Context) iter.Seq2[string, error] {
	return or(h.on.queues, (*wrapper).Queues, h.on.queues != nil)(h.wrapper, ctx)
}

func (h hookedBackend) ScheduledQueues(ctx context.Context) iter.Seq2[driver.ScheduledQueue, error] {
	return or(h.on.scheduled, (*wrapper).ScheduledQueues, h.on.scheduled != nil)(h.wrapper, ctx)
}

func (h hookedBackend) DeleteQueue(ctx context.Context, name string) error {
	return or(h.on.deleteQueue, (*wrapper).DeleteQueue, h.on.deleteQueue != nil)(h.wrapper, ctx, name)
}

func (h hookedBackend) Ping(ctx context.Context) error {
	return or(h.on.ping, (*wrapper).Ping, h.on.ping != nil)(h.wrapper, ctx)
}

func (h hookedBackend) Close() error {
	return or(h.on.shut, (*wrapper).Close, h.on.shut != nil)(h.wrapper)
}

// wrap returns inner with hooks. If inner lacks an ability of a backend, it can only open
// queues. restart is called once for each queue, see Saboteur.
func (on *hooks) wrap(inner driver.Opener, restart func(q *queue, ctx context.Context) error, log *restartLog) driver.Opener {
	b := &wrapper{
		inner: inner, on: on, restart: restart, log: log,
		asked: make(map[string]driver.Config), handles: make(map[string]*handles),
	}
	if _, ok := inner.(backend); !ok {
		return struct{ driver.Opener }{hookedBackend{b}}
	}
	return hookedBackend{b}
}
