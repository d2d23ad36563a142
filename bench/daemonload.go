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
	// producers send bodies and return when the server has confirmed all of them.
	producers []func(bodies [][]byte) error
	consumers []daemonConsumer
	// disconnect closes the connections of the workers.
	disconnect func() error
	runs       uint64
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
	return errors.Join(err, s.process.stop())
}

// A daemonPace is the rate of a server and the cost of one message.
type daemonPace struct {
	rate            float64 // messages a second
	server, clients float64 // processor time, in microseconds
	resident        float64 // MiB that the server has at the end
}

// daemonRun is one run of all workers. Bodies begin with the number of the run,
// the number of the message, and the time at which it was sent.
type daemonRun struct {
	number uint64
	start  time.Time
	last   atomic.Uint64 // number of the last message
	settle atomic.Uint64 // messages that were acked
	over   atomic.Bool   // nothing more is sent
	failed atomic.Bool
	broken chan struct{} // closed by the first failure
	ended  atomic.Int64  // when the last ack was confirmed, in ns since start
	window chan struct{}

	mu   sync.Mutex
	errs []error
	got  []uint64
	took []time.Duration
}

// daemonWindow bounds the batches between producers and consumers, so that neither
// side runs ahead of the other.
const daemonWindow = 64

// daemonPatience is how long no message may arrive before messages count as lost. It is
// shorter than the visibility, so that none is delivered again before.
const daemonPatience = daemonVisibility / 2

func (s *daemonStand) newRun(batch int) *daemonRun {
	s.runs++
	return &daemonRun{number: s.runs, start: time.Now(), broken: make(chan struct{}), window: make(chan struct{}, daemonWindow*batch)}
}

func (r *daemonRun) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.failed.Swap(true) {
		close(r.broken)
	}
	r.errs = append(r.errs, err)
}

// finished reports whether everything that was sent has been acked.
func (r *daemonRun) finished() bool {
	return r.failed.Load() || r.over.Load() && r.settle.Load() >= r.last.Load()
}

// stamp writes what identifies the next message into body.
func (r *daemonRun) stamp(body []byte) {
	binary.BigEndian.PutUint64(body, r.number)
	binary.BigEndian.PutUint64(body[8:], r.last.Add(1))
	binary.BigEndian.PutUint64(body[16:], uint64(time.Since(r.start)))
}

// flood sends as fast as possible for a while, and consumes everything.
func (s *daemonStand) flood(batch int, during time.Duration) (daemonPace, error) {
	server, clients := s.process.processor(), processorTime()
	r := s.newRun(batch)
	var producing, consuming sync.WaitGroup
	for _, send := range s.producers {
		producing.Go(func() { r.produce(send, batch, during) })
	}
	for _, c := range s.consumers {
		consuming.Go(func() { r.consume(c) })
	}
	producing.Wait()
	r.over.Store(true)
	consuming.Wait()
	if err := r.check(); err != nil {
		return daemonPace{}, err
	}
	messages := float64(r.last.Load())
	return daemonPace{
		rate:     messages / time.Duration(r.ended.Load()).Seconds(),
		server:   float64((s.process.processor() - server).Nanoseconds()) / 1e3 / messages,
		clients:  float64((processorTime() - clients).Nanoseconds()) / 1e3 / messages,
		resident: s.process.resident(),
	}, nil
}

// trickle sends single messages at a steady rate, each at its own time, and returns how
// long each took to be received.
func (s *daemonStand) trickle(rate int, during time.Duration) ([]time.Duration, error) {
	r := s.newRun(rate)
	var producing, consuming sync.WaitGroup
	every := time.Second * time.Duration(len(s.producers)) / time.Duration(rate)
	for i, send := range s.producers {
		producing.Go(func() {
			first := r.start.Add(every * time.Duration(i) / time.Duration(len(s.producers)))
			bodies := newDaemonBodies(1)
			for n := 0; !r.failed.Load() && every*time.Duration(n) < during; n++ {
				time.Sleep(time.Until(first.Add(every * time.Duration(n))))
				r.stamp(bodies[0])
				if err := send(bodies); err != nil {
					r.fail(fmt.Errorf("send: %w", err))
				}
			}
		})
	}
	for _, c := range s.consumers {
		consuming.Go(func() { r.consume(c) })
	}
	producing.Wait()
	r.over.Store(true)
	consuming.Wait()
	return r.took, r.check()
}

func newDaemonBodies(n int) [][]byte {
	bodies := make([][]byte, n)
	for i := range bodies {
		bodies[i] = make([]byte, bodyBytes)
		for at := 0; at < bodyBytes; at += 8 { // nothing that could be compressed
			binary.NativeEndian.PutUint64(bodies[i][at:], rand.Uint64())
		}
	}
	return bodies
}

func (r *daemonRun) produce(send func([][]byte) error, batch int, during time.Duration) {
	bodies := newDaemonBodies(batch)
	for !r.failed.Load() && time.Since(r.start) < during {
		for _, body := range bodies {
			if !r.enter() {
				return
			}
			r.stamp(body)
		}
		if err := send(bodies); err != nil {
			r.fail(fmt.Errorf("send: %w", err))
		}
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
			if len(body) != bodyBytes || binary.BigEndian.Uint64(body) != r.number {
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
		default: // trickle does not use the window
		}
	}
}

// check compares the messages received and acked with those sent: each exactly once.
func (r *daemonRun) check() error {
	if err := errors.Join(r.errs...); err != nil {
		return err
	}
	sent := r.last.Load()
	if uint64(len(r.got)) != sent {
		return fmt.Errorf("sent %d messages and received %d", sent, len(r.got))
	}
	slices.Sort(r.got)
	for i, number := range r.got {
		if number != uint64(i)+1 {
			return fmt.Errorf("of %d messages, number %d was lost or came twice", sent, i+1)
		}
	}
	return nil
}
