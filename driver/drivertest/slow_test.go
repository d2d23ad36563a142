package drivertest

import (
	"context"
	"iter"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/membox"
)

// A slowness is how long operations take: up to usual, and one in every so many up to stall.
type slowness struct {
	usual, stall time.Duration
	every        int
}

// A delay sleeps before and after each operation of a backend.
type delay struct {
	slowness

	mu   sync.Mutex // guards rand
	rand *rand.Rand
}

func (d *delay) sleep() {
	d.mu.Lock()
	pause := d.usual
	if d.rand.IntN(d.every) == 0 {
		pause = d.stall
	}
	pause = time.Duration(d.rand.Int64N(int64(pause) + 1))
	d.mu.Unlock()
	time.Sleep(pause)
}

// around sleeps, and returns a function that sleeps again.
func (d *delay) around() func() {
	d.sleep()
	return d.sleep
}

// slowOpener is a memory backend with delays.
type slowOpener struct {
	*membox.Backend
	delay *delay
}

func (o slowOpener) OpenQueue(ctx context.Context, name string) (driver.Queue, error) {
	defer o.delay.around()()
	q, err := o.Backend.OpenQueue(ctx, name)
	if err != nil {
		return nil, err
	}
	return slowQueue{q, o.delay}, nil
}

func (o slowOpener) ConfigureQueue(ctx context.Context, name string, config driver.Config) error {
	defer o.delay.around()()
	return o.Backend.ConfigureQueue(ctx, name, config)
}

func (o slowOpener) QueueConfig(ctx context.Context, name string) (driver.Config, error) {
	defer o.delay.around()()
	return o.Backend.QueueConfig(ctx, name)
}

func (o slowOpener) Queues(ctx context.Context) iter.Seq2[string, error] {
	defer o.delay.around()()
	return o.Backend.Queues(ctx)
}

func (o slowOpener) DeleteQueue(ctx context.Context, name string) error {
	defer o.delay.around()()
	return o.Backend.DeleteQueue(ctx, name)
}

type slowQueue struct {
	driver.Queue
	delay *delay
}

func (q slowQueue) Send(ctx context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
	defer q.delay.around()()
	return q.Queue.Send(ctx, msgs)
}

func (q slowQueue) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	defer q.delay.around()()
	return q.Queue.Receive(ctx, req)
}

func (q slowQueue) Ack(ctx context.Context, receipts []driver.Receipt) error {
	defer q.delay.around()()
	return q.Queue.Ack(ctx, receipts)
}

func (q slowQueue) Nack(ctx context.Context, nacks []driver.Nack) error {
	defer q.delay.around()()
	return q.Queue.Nack(ctx, nacks)
}

func (q slowQueue) Extend(ctx context.Context, extensions []driver.Extension) ([]time.Duration, error) {
	defer q.delay.around()()
	return q.Queue.Extend(ctx, extensions)
}

func (q slowQueue) Purge(ctx context.Context) (int, error) {
	defer q.delay.around()()
	return q.Queue.Purge(ctx)
}

func (q slowQueue) Stats(ctx context.Context) (driver.Stats, error) {
	defer q.delay.around()()
	return q.Queue.Stats(ctx)
}

func (q slowQueue) DeadLetter(ctx context.Context, requests []driver.DeadLetterRequest) error {
	defer q.delay.around()()
	return q.Queue.DeadLetter(ctx, requests)
}

func (q slowQueue) DeadLetters(ctx context.Context) iter.Seq2[driver.DeadLetter, error] {
	defer q.delay.around()()
	return q.Queue.DeadLetters(ctx)
}

func (q slowQueue) Redrive(ctx context.Context, ids []string, limit int) (int, error) {
	defer q.delay.around()()
	return q.Queue.Redrive(ctx, ids, limit)
}

func (q slowQueue) Discard(ctx context.Context, ids []string) (int, error) {
	defer q.delay.around()()
	return q.Queue.Discard(ctx, ids)
}

func (q slowQueue) PurgeDead(ctx context.Context) (int, error) {
	defer q.delay.around()()
	return q.Queue.PurgeDead(ctx)
}

func (q slowQueue) Peek(ctx context.Context, query driver.Query) iter.Seq2[driver.Peeked, error] {
	defer q.delay.around()()
	return q.Queue.Peek(ctx, query)
}

func (q slowQueue) Move(ctx context.Context, to string, limit int) (int, error) {
	defer q.delay.around()()
	return q.Queue.Move(ctx, to, limit)
}

func (q slowQueue) AckLate(ctx context.Context, receipts []driver.Receipt) error {
	defer q.delay.around()()
	return q.Queue.AckLate(ctx, receipts)
}

func (q slowQueue) ExtendLate(ctx context.Context, extensions []driver.Extension) error {
	defer q.delay.around()()
	return q.Queue.ExtendLate(ctx, extensions)
}

func (q slowQueue) ForgetDedup(ctx context.Context) error {
	defer q.delay.around()()
	return q.Queue.ForgetDedup(ctx)
}

func (q slowQueue) Pause(ctx context.Context) error {
	defer q.delay.around()()
	return q.Queue.Pause(ctx)
}

func (q slowQueue) Resume(ctx context.Context) error {
	defer q.delay.around()()
	return q.Queue.Resume(ctx)
}

func (q slowQueue) Edit(ctx context.Context, id string, edit driver.Edit) (driver.State, error) {
	defer q.delay.around()()
	return q.Queue.Edit(ctx, id, edit)
}

func (q slowQueue) Fire(ctx context.Context, firing driver.Firing) (driver.Schedule, bool, error) {
	defer q.delay.around()()
	return q.Queue.Fire(ctx, firing)
}

func (q slowQueue) Schedules(ctx context.Context, name string) iter.Seq2[driver.Schedule, error] {
	defer q.delay.around()()
	return q.Queue.Schedules(ctx, name)
}

// slowBackend returns a memory backend on a clock that the suite takes for the real one.
func slowBackend(d *delay) Backend {
	return Backend{
		Open: func(testing.TB) driver.Opener { return slowOpener{membox.New(nil), d} },
		Restart: func(_ testing.TB, old driver.Opener, _ Crash) driver.Opener {
			for range 10 {
				d.sleep()
			}
			return old
		},
		Crashes: []Crash{CrashClean, CrashKill, CrashPower},
	}
}

// slowStore is a reply store with delays.
type slowStore struct {
	driver.ReplyStore
	delay *delay
}

func (s slowStore) Create(ctx context.Context, id string, ttl time.Duration) error {
	defer s.delay.around()()
	return s.ReplyStore.Create(ctx, id, ttl)
}

func (s slowStore) Resolve(ctx context.Context, id string, answer driver.Answer) error {
	defer s.delay.around()()
	return s.ReplyStore.Resolve(ctx, id, answer)
}

func (s slowStore) Cancel(ctx context.Context, id string) error {
	defer s.delay.around()()
	return s.ReplyStore.Cancel(ctx, id)
}

func (s slowStore) Get(ctx context.Context, id string) (driver.Slot, error) {
	defer s.delay.around()()
	return s.ReplyStore.Get(ctx, id)
}

func (s slowStore) Wait(ctx context.Context, id string, wait time.Duration) (driver.Slot, error) {
	defer s.delay.around()()
	return s.ReplyStore.Wait(ctx, id, wait)
}

func (s slowStore) Consume(ctx context.Context, id string) (driver.Slot, error) {
	defer s.delay.around()()
	return s.ReplyStore.Consume(ctx, id)
}

func (s slowStore) Delete(ctx context.Context, id string) error {
	defer s.delay.around()()
	return s.ReplyStore.Delete(ctx, id)
}

func (s slowStore) Expired(ctx context.Context, limit int) ([]string, error) {
	defer s.delay.around()()
	return s.ReplyStore.Expired(ctx, limit)
}

func (s slowStore) Sweep(ctx context.Context, limit int) (int, error) {
	defer s.delay.around()()
	return s.ReplyStore.Sweep(ctx, limit)
}
