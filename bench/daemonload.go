package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// daemonStand is a server that runs, with its workers connected.
type daemonStand struct {
	process *daemonProcess
	shape   daemonShape
	door    daemonDoor // of mailboxd
	// producers send bodies and return when the server has confirmed all of them.
	producers []func(bodies [][]byte) error
	consumers []daemonConsumer
	// disconnect closes the connections of the workers.
	disconnect func() error
	// flushes counts how often the server flushes files, if that can be counted.
	flushes *flushCounter
	sqs     *sqsWorkers // of a server that speaks the protocol of SQS
	rate    float64     // of the last flood, in messages a second
	last    uint64      // messages of the last flood
	runs    uint64
}

// daemonConsumer receives and acks.
type daemonConsumer interface {
	// receive waits for a second at most, and may return nothing.
	receive() (bodies [][]byte, err error)
	// ack settles what was received last, and returns when the server has
	// confirmed it.
	ack() error
}

func (s *daemonStand) close() error {
	var err error
	if s.disconnect != nil {
		err = s.disconnect()
	}
	return errors.Join(err, s.flushes.close(), s.process.stop())
}

// onDisconnect adds to what disconnect closes, first in, last out.
func (s *daemonStand) onDisconnect(close func() error) {
	before := s.disconnect
	s.disconnect = func() error {
		err := close()
		if before != nil {
			err = errors.Join(err, before())
		}
		return err
	}
}

// daemonRun is one run of all workers. Bodies begin with the number of the run,
// the number of the message, and the time at which it was sent.
type daemonRun struct {
	number uint64
	body   int
	start  time.Time
	last   atomic.Uint64 // number of the last message
	settle atomic.Uint64 // messages that were acked
	over   atomic.Bool   // nothing more is sent
	failed atomic.Bool
	broken chan struct{} // closed by the first failure
	ended  atomic.Int64  // when the last ack was confirmed, in ns since start
	window chan struct{}
	// until, unless it is 0, is when consumers stop even if messages are left.
	until time.Duration

	mu   sync.Mutex
	errs []error
	got  []uint64
	took []time.Duration
}

// daemonWindow bounds the batches between producers and consumers, so that neither
// side runs ahead of the other. Many workers have a larger window.
const daemonWindow = 64

// daemonPatience is how long no message may arrive before messages count as lost. It is
// shorter than the visibility, so that none is delivered again before.
const daemonPatience = daemonVisibility / 2

func (s *daemonStand) newRun() *daemonRun {
	s.runs++
	window := max(daemonWindow, 4*s.shape.workers) * s.shape.batch
	return &daemonRun{number: s.runs, body: s.shape.body, start: time.Now(), broken: make(chan struct{}), window: make(chan struct{}, window)}
}

func (r *daemonRun) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.failed.Swap(true) {
		close(r.broken)
	}
	r.errs = append(r.errs, err)
}

// finished reports whether everything that was sent has been acked, or the time is up.
func (r *daemonRun) finished() bool {
	return r.failed.Load() || r.over.Load() && r.settle.Load() >= r.last.Load() || r.until > 0 && time.Since(r.start) > r.until
}

// stamp writes what identifies the next message into body.
func (r *daemonRun) stamp(body []byte) {
	binary.BigEndian.PutUint64(body, r.number)
	binary.BigEndian.PutUint64(body[8:], r.last.Add(1))
	binary.BigEndian.PutUint64(body[16:], uint64(time.Since(r.start)))
}

// flood sends as fast as possible for a while, and consumes everything.
func (s *daemonStand) flood(during time.Duration) (daemonPace, error) {
	before := s.meter()
	r := s.newRun()
	r.work(s, func(i int) {
		bodies := newDaemonBodies(s.shape)
		for !r.failed.Load() && time.Since(r.start) < during {
			for _, body := range bodies {
				if !r.enter() {
					return
				}
				r.stamp(body)
			}
			r.send(s.producers[i], bodies)
		}
	})
	pace := before.pace(s.meter(), r.last.Load(), time.Duration(r.ended.Load()))
	s.rate, s.last = pace.Rate, r.last.Load()
	return pace, r.check()
}

// trickle sends single messages at the rate of the suite.
func (s *daemonStand) trickle(during time.Duration) (daemonPace, error) {
	return s.steady(daemonRate, during)
}

// steady sends single messages at a steady rate, each at its own time, and measures how
// long each took to be received.
func (s *daemonStand) steady(rate int, during time.Duration) (daemonPace, error) {
	before := s.meter()
	r := s.newRun()
	every := time.Second * time.Duration(len(s.producers)) / time.Duration(rate)
	r.work(s, func(i int) {
		first := r.start.Add(every * time.Duration(i) / time.Duration(len(s.producers)))
		bodies := newDaemonBodies(s.shape)[:1]
		for n := 0; !r.failed.Load() && every*time.Duration(n) < during; n++ {
			time.Sleep(time.Until(first.Add(every * time.Duration(n))))
			r.stamp(bodies[0])
			r.send(s.producers[i], bodies)
		}
	})
	after := s.meter()
	pace := before.pace(after, r.last.Load(), time.Duration(r.ended.Load()))
	if len(r.took) > 0 {
		slices.Sort(r.took)
		pace.P50, pace.P99 = microseconds(percentile(r.took, 50)), microseconds(percentile(r.took, 99))
	}
	return pace, r.check()
}

// work runs all producers and all consumers to the end.
func (r *daemonRun) work(s *daemonStand, produce func(i int)) {
	var producing, consuming sync.WaitGroup
	for i := range s.producers {
		producing.Go(func() { produce(i) })
	}
	for _, c := range s.consumers {
		consuming.Go(func() { r.consume(c) })
	}
	producing.Wait()
	r.over.Store(true)
	consuming.Wait()
}

// daemonFilling and daemonDraining bound how long W4 sends and drains, for slow servers:
// they are judged by fewer messages.
const (
	daemonFilling  = 20 * time.Second
	daemonDraining = 30 * time.Second
)

// backlog sends messages that nothing receives, and then drains them.
func (s *daemonStand) backlog(messages uint64) (sent, drained daemonPace, err error) {
	r := s.newRun()
	empty := s.process.resident()
	before := s.meter()
	var next atomic.Uint64
	var producing, consuming sync.WaitGroup
	for _, send := range s.producers {
		producing.Go(func() {
			bodies := newDaemonBodies(s.shape)
			batch := uint64(len(bodies))
			for to := next.Add(batch); to-batch < messages && !r.failed.Load() && time.Since(r.start) < daemonFilling; to = next.Add(batch) {
				part := bodies[:batch-(max(to, messages)-messages)]
				for _, body := range part {
					r.stamp(body)
				}
				r.send(send, part)
			}
		})
	}
	producing.Wait()
	filled, waiting := time.Since(r.start), r.last.Load()
	sent = before.pace(s.meter(), waiting, filled)
	sent.Waiting = waiting
	sent.BytesWaiting = (sent.Resident - empty) * (1 << 20) / float64(max(waiting, 1))
	r.over.Store(true)
	r.start = time.Now()
	r.until = daemonDraining
	before = s.meter()
	for _, c := range s.consumers {
		consuming.Go(func() { r.consume(c) })
	}
	consuming.Wait()
	drained = before.pace(s.meter(), r.settle.Load(), time.Duration(r.ended.Load()))
	return sent, drained, r.check()
}

func newDaemonBodies(shape daemonShape) [][]byte {
	bodies := make([][]byte, shape.batch)
	for i := range bodies {
		bodies[i] = make([]byte, shape.body)
		for at := 0; at < shape.body; at += 8 { // nothing that could be compressed
			binary.NativeEndian.PutUint64(bodies[i][at:], rand.Uint64())
		}
	}
	return bodies
}

func (r *daemonRun) send(send func([][]byte) error, bodies [][]byte) {
	if err := send(bodies); err != nil {
		r.fail(fmt.Errorf("send: %w", err))
	}
}

// enter waits for room in the window. It reports false when the run has failed.
func (r *daemonRun) enter() bool {
	select {
	case r.window <- struct{}{}:
		return true
	case <-r.broken:
		return false
	}
}

// missing reports whether messages are under way and none has arrived for too long.
func (r *daemonRun) missing() bool {
	return r.settle.Load() < r.last.Load() && time.Since(r.start)-time.Duration(r.ended.Load()) > daemonPatience
}

func (r *daemonRun) consume(c daemonConsumer) {
	var got []uint64
	var took []time.Duration
	for !r.finished() {
		bodies, err := c.receive()
		now := time.Since(r.start)
		if err != nil {
			r.fail(fmt.Errorf("receive: %w", err))
			break
		}
		if len(bodies) == 0 {
			if r.missing() {
				r.fail(fmt.Errorf("of %d messages only %d came", r.last.Load(), r.settle.Load()))
			}
			continue
		}
		for _, body := range bodies {
			if len(body) != r.body || binary.BigEndian.Uint64(body) != r.number {
				r.fail(fmt.Errorf("received %d bytes that this run did not send", len(body)))
				break
			}
			got = append(got, binary.BigEndian.Uint64(body[8:]))
			took = append(took, now-time.Duration(binary.BigEndian.Uint64(body[16:])))
		}
		if err := c.ack(); err != nil {
			r.fail(fmt.Errorf("ack: %w", err))
			break
		}
		r.acked(len(bodies))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.got, r.took = append(r.got, got...), append(r.took, took...)
}

func (r *daemonRun) acked(n int) {
	now := time.Since(r.start).Nanoseconds()
	for last := r.ended.Load(); last < now && !r.ended.CompareAndSwap(last, now); last = r.ended.Load() {
		continue
	}
	r.settle.Add(uint64(n))
	for range n {
		select {
		case <-r.window:
		default: // only flood uses the window
		}
	}
}

// check compares the messages received and acked with those sent: each exactly once. If the
// time was up before all came, each at most once.
func (r *daemonRun) check() error {
	if err := errors.Join(r.errs...); err != nil {
		return err
	}
	sent := r.last.Load()
	if uint64(len(r.got)) > sent || uint64(len(r.got)) < sent && r.until == 0 {
		return fmt.Errorf("sent %d messages and received %d", sent, len(r.got))
	}
	slices.Sort(r.got)
	if len(slices.Compact(slices.Clone(r.got))) < len(r.got) || len(r.got) > 0 && (r.got[0] == 0 || r.got[len(r.got)-1] > sent) {
		return fmt.Errorf("of %d messages, one was lost or came twice", sent)
	}
	return nil
}
