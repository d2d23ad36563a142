package worker

import "time"

// Oldest returns what the loop has been doing for the longest without a sign of
// life: the message at some handler, since when, and the number of the goroutine.
// A receive that the backend does not answer counts too, without a message. Since
// is zero if nothing is going on.
func (l *Loop[T]) Oldest() (messageID string, since time.Time, goroutine int64) {
	r := l.running()
	if r == nil {
		return "", time.Time{}, 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	oldest, found := r.asked+l.options.Wait, r.receiving // to wait for messages is no sign of anything
	for slot, j := range r.at {
		if j != nil && !j.resting && (!found || j.since < oldest) {
			messageID, goroutine = j.id, r.numbers[slot]
			oldest, found = j.since, true
		}
	}
	if !found {
		return "", time.Time{}, 0
	}
	return messageID, r.began.Add(oldest), goroutine
}

// Interrupt cancels the context of the handler that has this message, with this
// cause. The message is settled when the handler returns.
func (l *Loop[T]) Interrupt(messageID string, cause error) {
	r := l.running()
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, j := range r.at {
		if j != nil && j.id == messageID {
			j.cancel(cause)
		}
	}
}
