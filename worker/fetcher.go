package worker

import (
	"errors"
	"log/slog"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/internal/backoff"
)

// fetch receives messages until polling ends. Backend errors do not end it unless
// they are hopeless.
func (r *run[T]) fetch() error {
	o := &r.loop.options
	for failures := 0; ; {
		n, err := r.awaitRoom()
		if n == 0 && err == nil {
			return nil
		}
		if err == nil {
			var messages []*mailbox.Message[T]
			messages, err = r.receive(n, o.Wait)
			r.fetched(messages)
		}
		switch {
		case err == nil:
			failures = 0
			continue
		case r.polling.Err() != nil:
			return nil
		case hopeless(err):
			return err
		}
		failures++
		r.loop.backendFailed(r.polling, "receive", err)
		if failures == 1 {
			o.Logger.LogAttrs(r.polling, slog.LevelWarn, "worker: cannot receive, retrying",
				slog.String("loop", o.Name), slog.Any("err", err))
		}
		_ = backoff.Pause(r.polling, backoff.AfterError(failures, err))
	}
}

// hopeless reports whether no later receive can succeed: the mailbox was closed, or
// the backend does not support the request. A queue that does not exist may be
// created at any time.
func hopeless(err error) bool {
	return errors.Is(err, mailbox.ErrClosed) || errors.Is(err, mailbox.ErrInvalid) || errors.Is(err, mailbox.ErrUnsupported)
}

// receive calls the backend once.
func (r *run[T]) receive(n int, wait time.Duration) ([]*mailbox.Message[T], error) {
	messages, err := r.loop.mailbox.Receive(r.polling,
		mailbox.WithMax(n), mailbox.WithWait(wait), mailbox.WithVisibility(r.loop.options.Visibility))
	r.loop.received(r.polling, len(messages))
	return messages, err
}

// fetched adds the messages that the fetcher received.
func (r *run[T]) fetched(messages []*mailbox.Message[T]) {
	jobs, now := r.jobsOf(messages, make([]*job[T], 0, len(messages))), r.now()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.receiving, r.answered = false, now
	r.addLocked(jobs, now)
	r.callWorkerLocked()
}

// awaitRoom blocks until there is room for messages, and returns how many to
// receive; 0 when polling has ended. If a worker received instead of the fetcher
// and failed, it returns that error.
func (r *run[T]) awaitRoom() (int, error) {
	for r.polling.Err() == nil {
		now := r.now()
		r.mu.Lock()
		n, err := r.roomLocked(), r.ownErr
		r.ownErr = nil
		r.fetcherWaits = n == 0 && err == nil
		r.receiving, r.asked = n > 0 && err == nil, now
		r.mu.Unlock()
		if n > 0 || err != nil {
			return n, err
		}
		select {
		case <-r.room:
		case <-r.polling.Done():
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.fetchingOwn {
		r.ownEnded.Wait()
	}
	r.fetcherWaits = false
	return 0, nil
}

// roomLocked returns how many messages to receive now. While all workers are busy,
// it waits for room for several, to make fewer calls.
func (r *run[T]) roomLocked() int {
	taken := r.running
	if batches := r.loop.batches; batches != nil {
		taken = r.batching * batches.size // a batch gets no more messages once it has started
	}
	room := min(r.capacity-len(r.waiting)-taken, r.heldMax-r.held)
	starving := len(r.waiting) == 0 && taken < len(r.at)
	if room < r.refill && !starving {
		return 0
	}
	return max(0, room)
}

// callFetcherLocked wakes the fetcher if it waits for room and there is some.
func (r *run[T]) callFetcherLocked() {
	if r.fetcherWaits && r.roomLocked() > 0 {
		r.wakeFetcherLocked()
	}
}

func (r *run[T]) wakeFetcherLocked() {
	r.fetcherWaits = false
	select {
	case r.room <- struct{}{}:
	default:
	}
}

// mayFetchLocked reports whether an idle worker should receive itself: the fetcher
// waits, and no other worker is busy. Waking the fetcher and being woken by it takes
// longer than handling a quick message.
func (r *run[T]) mayFetchLocked() bool {
	return r.fetcherWaits && r.running == 0 && len(r.waiting) == 0 && r.roomLocked() > 0
}

// fetchOwnLocked receives on the goroutine of a worker. It unlocks the mutex during
// the receive, and returns the time after it.
func (r *run[T]) fetchOwnLocked(now time.Duration) time.Duration {
	n, quick := r.roomLocked(), r.quick
	r.fetcherWaits, r.fetchingOwn = false, true
	r.receiving, r.asked = true, now
	r.mu.Unlock()
	var messages []*mailbox.Message[T]
	var err error
	if quick { // a receive without a wait costs less than preparing a wait
		messages, err = r.receive(n, 0)
	}
	if len(messages) == 0 && (err == nil || errors.Is(err, mailbox.ErrFull)) { // no message can be received now
		messages, err = r.receive(n, r.loop.options.Wait)
	}
	var spare [1]*job[T]
	jobs := r.jobsOf(messages, spare[:])
	now = r.now()
	r.mu.Lock()
	r.fetcherWaits, r.fetchingOwn = true, false
	r.receiving, r.answered = false, now
	r.addLocked(jobs, now)
	if err != nil || r.polling.Err() != nil {
		r.ownErr = err
		r.wakeFetcherLocked()
		r.ownEnded.Broadcast()
	}
	return now
}
