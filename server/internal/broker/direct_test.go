package broker_test

import (
	"context"
	"iter"
	"sync"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/keyring"
	"github.com/mailboxmq/mailbox/internal/verify"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

// direct is a client that calls the broker without a wire, which runs the conformance
// suite on the broker alone.
type direct struct {
	caller  broker.Caller
	backend driver.Opener

	mu     sync.Mutex
	closed bool
	queues map[*directQueue]struct{}
}

// newDirect returns a client with a token for everything, for a tenant.
func newDirect(t testing.TB, backend driver.Opener, tenant string) *direct {
	t.Helper()
	ring := keyring.New(keyring.NewKey())
	b, err := broker.New(broker.Options{
		Opener: backend, Ring: ring, Verifier: verify.New(ring, nil),
		Limits: broker.Limits{MaxPayloadBytes: driver.DefaultMaxBodyBytes},
	})
	if err != nil {
		t.Fatal(err)
	}
	return &direct{
		caller: b.Caller(mint(t, ring, tenant), broker.Origin{}), backend: backend,
		queues: make(map[*directQueue]struct{}),
	}
}

// mint returns a token for everything.
func mint(t testing.TB, ring *keyring.Ring, tenant string, caveats ...capability.Caveat) capability.Token {
	t.Helper()
	caveats = append(caveats, capability.EveryOperation(), capability.Queues(capability.AnyQueue()), capability.ExpiresAt(time.Now().AddDate(200, 0, 0)))
	token, err := ring.Mint(tenant, caveats...)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func (d *direct) check(op string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return &driver.Error{Code: driver.ErrClosed, Op: op}
	}
	return nil
}

func (d *direct) OpenQueue(ctx context.Context, name string) (driver.Queue, error) {
	if err := d.check("open"); err != nil {
		return nil, err
	}
	if _, err := d.caller.Traits(ctx, name); err != nil {
		return nil, err
	}
	if _, err := d.caller.Send(ctx, name, nil); err != nil { // creates the queue
		return nil, err
	}
	identity, _, err := d.caller.Identity(ctx, name)
	if err != nil {
		return nil, err
	}
	caller := d.caller.Existing().On(broker.NewBinding(identity))
	q := &directQueue{opener: d, name: name, caller: caller, closing: make(chan struct{})}
	d.mu.Lock()
	d.queues[q] = struct{}{}
	d.mu.Unlock()
	return q, nil
}

func (d *direct) ConfigureQueue(ctx context.Context, name string, config driver.Config) error {
	if err := d.check("configure"); err != nil {
		return err
	}
	return d.caller.Configure(ctx, name, config)
}

func (d *direct) QueueConfig(ctx context.Context, name string) (driver.Config, error) {
	if err := d.check("configure"); err != nil {
		return driver.Config{}, err
	}
	return d.caller.Config(ctx, name)
}

func (d *direct) Queues(ctx context.Context) iter.Seq2[string, error] {
	if err := d.check("list"); err != nil {
		return func(yield func(string, error) bool) { yield("", err) }
	}
	return d.caller.Queues(ctx)
}

func (d *direct) DeleteQueue(ctx context.Context, name string) error {
	if err := d.check("delete"); err != nil {
		return err
	}
	return d.caller.Delete(ctx, name)
}

func (d *direct) Close() error {
	d.mu.Lock()
	d.closed = true
	queues := d.queues
	d.queues = nil
	d.mu.Unlock()
	for q := range queues {
		_ = q.Close()
	}
	return d.backend.(*membox.Backend).Close()
}

// directQueue is a handle; closing it wakes its receives.
type directQueue struct {
	driver.Unsupported
	opener  *direct
	name    string
	caller  broker.Caller
	once    sync.Once
	closing chan struct{}
}

func (q *directQueue) check(op string) error {
	select {
	case <-q.closing:
		return &driver.Error{Code: driver.ErrClosed, Op: op, Queue: q.name}
	default:
		return nil
	}
}

func (q *directQueue) Send(ctx context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
	if err := q.check("send"); err != nil {
		return nil, err
	}
	out := make([]broker.Outgoing, len(msgs))
	for i := range msgs {
		out[i].Outgoing = msgs[i]
	}
	return q.caller.Send(ctx, q.name, out)
}

func (q *directQueue) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	if err := q.check("receive"); err != nil {
		return nil, err
	}
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		select {
		case <-q.closing:
			cancel()
		case <-stop:
		}
	}()
	got, err := q.caller.Receive(waiting, q.name, req)
	if err != nil && ctx.Err() == nil && waiting.Err() != nil {
		return nil, q.check("receive")
	}
	var deliveries []driver.Delivery
	for _, d := range got {
		deliveries = append(deliveries, driver.Delivery{Message: d.Message, Receipt: driver.Receipt{Handle: d.Receipt}})
	}
	return deliveries, err
}

// sealed returns the receipt of the broker. Place and nonce are not used here; a receipt
// that has them is not one of the broker.
func sealed(r driver.Receipt) string {
	if r.Place != 0 || r.Nonce != 0 {
		return r.String()
	}
	return r.Handle
}

func (q *directQueue) Ack(ctx context.Context, receipts []driver.Receipt) error {
	if err := q.check("ack"); err != nil {
		return err
	}
	texts := make([]string, len(receipts))
	for i, r := range receipts {
		texts[i] = sealed(r)
	}
	return q.caller.Ack(ctx, q.name, texts)
}

func (q *directQueue) Nack(ctx context.Context, nacks []driver.Nack) error {
	if err := q.check("nack"); err != nil {
		return err
	}
	out := make([]broker.Nack, len(nacks))
	for i, n := range nacks {
		out[i] = broker.Nack{Receipt: sealed(n.Receipt), Delay: n.Delay, Cause: n.Cause, Mode: n.Mode}
	}
	return q.caller.Nack(ctx, q.name, out)
}

func (q *directQueue) Extend(ctx context.Context, extensions []driver.Extension) ([]time.Duration, error) {
	if err := q.check("extend"); err != nil {
		return nil, err
	}
	out := make([]broker.Extension, len(extensions))
	for i, e := range extensions {
		out[i] = broker.Extension{Receipt: sealed(e.Receipt), Visibility: e.Visibility}
	}
	return q.caller.Extend(ctx, q.name, out)
}

func (q *directQueue) DeadLetter(ctx context.Context, requests []driver.DeadLetterRequest) error {
	if err := q.check("dead-letter"); err != nil {
		return err
	}
	out := make([]broker.DeadLetterRequest, len(requests))
	for i, b := range requests {
		out[i] = broker.DeadLetterRequest{Receipt: sealed(b.Receipt), Reason: b.Reason, Error: b.Error, ErrorType: b.ErrorType}
	}
	return q.caller.DeadLetter(ctx, q.name, out)
}

func (q *directQueue) DeadLetters(ctx context.Context) iter.Seq2[driver.DeadLetter, error] {
	return func(yield func(driver.DeadLetter, error) bool) {
		if err := q.check("list dead letters"); err != nil {
			yield(driver.DeadLetter{}, err)
			return
		}
		for peeked, err := range q.caller.DeadLetters(ctx, q.name) {
			if !yield(peeked.DeadLetter, err) {
				return
			}
		}
	}
}

func (q *directQueue) Peek(ctx context.Context, query driver.Query) iter.Seq2[driver.Peeked, error] {
	return func(yield func(driver.Peeked, error) bool) {
		if err := q.check("peek"); err != nil {
			yield(driver.Peeked{}, err)
			return
		}
		for peeked, err := range q.caller.Peek(ctx, q.name, query) {
			if !yield(peeked.Peeked, err) {
				return
			}
		}
	}
}

func (q *directQueue) Redrive(ctx context.Context, ids []string, limit int) (int, error) {
	if err := q.check("redrive"); err != nil {
		return 0, err
	}
	return q.caller.Redrive(ctx, q.name, ids, limit)
}

func (q *directQueue) Discard(ctx context.Context, ids []string) (int, error) {
	if err := q.check("discard"); err != nil {
		return 0, err
	}
	return q.caller.Discard(ctx, q.name, ids)
}

func (q *directQueue) PurgeDead(ctx context.Context) (int, error) {
	if err := q.check("purge dead letters"); err != nil {
		return 0, err
	}
	return q.caller.PurgeDead(ctx, q.name)
}

func (q *directQueue) Pause(ctx context.Context) error {
	if err := q.check("pause"); err != nil {
		return err
	}
	return q.caller.Pause(ctx, q.name)
}

func (q *directQueue) Resume(ctx context.Context) error {
	if err := q.check("resume"); err != nil {
		return err
	}
	return q.caller.Resume(ctx, q.name)
}

func (q *directQueue) Throttle(ctx context.Context, group string, wait time.Duration) error {
	if err := q.check("throttle"); err != nil {
		return err
	}
	return q.caller.Throttle(ctx, q.name, group, wait)
}

func (q *directQueue) Edit(ctx context.Context, id string, edit driver.Edit) (driver.State, error) {
	if err := q.check("edit"); err != nil {
		return "", err
	}
	return q.caller.Edit(ctx, q.name, id, edit)
}

func (q *directQueue) Fire(ctx context.Context, f driver.Firing) (driver.Schedule, bool, error) {
	if err := q.check("fire"); err != nil {
		return driver.Schedule{}, false, err
	}
	return q.caller.Fire(ctx, q.name, f)
}

func (q *directQueue) Schedules(ctx context.Context, name string) iter.Seq2[driver.Schedule, error] {
	return func(yield func(driver.Schedule, error) bool) {
		if err := q.check("list schedules"); err != nil {
			yield(driver.Schedule{}, err)
			return
		}
		for s, err := range q.caller.Schedules(ctx, q.name, name) {
			if !yield(s, err) {
				return
			}
		}
	}
}

func (q *directQueue) Purge(ctx context.Context) (int, error) {
	if err := q.check("purge"); err != nil {
		return 0, err
	}
	return q.caller.Purge(ctx, q.name)
}

func (q *directQueue) Stats(ctx context.Context) (driver.Stats, error) {
	if err := q.check("stats"); err != nil {
		return driver.Stats{}, err
	}
	return q.caller.Stats(ctx, q.name)
}

func (q *directQueue) Traits() driver.Traits {
	traits, _ := q.caller.Traits(context.Background(), q.name)
	traits.Move, traits.LateAck, traits.ForgetDedup, traits.Usage = false, false, false, false // see driver.Unsupported
	return traits
}

func (q *directQueue) Close() error {
	q.once.Do(func() { close(q.closing) })
	return nil
}
