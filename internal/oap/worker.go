package oap

import (
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// A Worker is a receiver of a queue that the server has seen lately.
type Worker struct {
	// Address is empty on a unix socket. Token is the id of the token.
	Queue, Name, Protocol, Address, Token string
	Since, Seen                           time.Time
	Waiting, InFlight                     int
	Acked, Failed, Expired                int
	Held                                  []HeldMessage
}

// A HeldMessage is a message that a worker holds.
type HeldMessage struct {
	ID      string
	Attempt int
	TakenAt time.Time
	Until   time.Time
	// Progress is what the worker has reported, and ReportedAt when the server first got it; nil if
	// it has reported nothing.
	Progress   *driver.Progress
	ReportedAt time.Time
}

// AppendWorker writes a worker. Workers follow each other to the end of a payload, which is an answer
// to OpWorkers. known are the traits that the client knows.
func AppendWorker(dst []byte, w *Worker, known uint64) []byte {
	for _, text := range []string{w.Queue, w.Name, w.Protocol, w.Address, w.Token} {
		dst = appendText(dst, text)
	}
	dst = appendTime(appendTime(dst, w.Since), w.Seen)
	for _, n := range []int{w.Waiting, w.InFlight, w.Acked, w.Failed, w.Expired} {
		dst = appendSigned(dst, int64(n))
	}
	dst = appendNumber(dst, uint64(len(w.Held)))
	for i := range w.Held {
		held := &w.Held[i]
		dst = appendSigned(appendText(dst, held.ID), int64(held.Attempt))
		dst = appendTime(appendTime(dst, held.TakenAt), held.Until)
		if known&traitProgress == 0 {
			continue
		}
		dst = appendFlag(dst, held.Progress != nil)
		if held.Progress != nil {
			dst = appendTime(appendProgress(dst, *held.Progress), held.ReportedAt)
		}
	}
	return dst
}

// ParseWorkers reads workers. known are the traits that the client has told.
func ParseWorkers(payload []byte, known uint64) (all []Worker, err error) {
	r := reader{rest: payload}
	for len(r.rest) > 0 && r.err == nil {
		all = append(all, r.worker(known))
	}
	return all, r.end()
}

func (r *reader) worker(known uint64) Worker {
	w := Worker{
		Queue: r.text(), Name: r.text(), Protocol: r.text(), Address: r.text(), Token: r.text(), Since: r.time(), Seen: r.time(),
		Waiting: r.int(), InFlight: r.int(), Acked: r.int(), Failed: r.int(), Expired: r.int(),
	}
	const leastHeld = 4
	if n := r.count(leastHeld); n > 0 {
		w.Held = make([]HeldMessage, n)
	}
	for i := range w.Held {
		held := &w.Held[i]
		*held = HeldMessage{ID: r.text(), Attempt: r.int(), TakenAt: r.time(), Until: r.time()}
		if known&traitProgress != 0 && r.flag() {
			progress := r.progress()
			held.Progress, held.ReportedAt = &progress, r.time()
		}
	}
	return w
}
