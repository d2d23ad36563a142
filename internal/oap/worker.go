package oap

import "time"

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
}

// AppendWorker writes a worker. Workers follow each other to the end of a payload, which is an answer
// to OpWorkers.
func AppendWorker(dst []byte, w *Worker) []byte {
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
	}
	return dst
}

// ParseWorkers reads workers.
func ParseWorkers(payload []byte) (all []Worker, err error) {
	r := reader{rest: payload}
	for len(r.rest) > 0 && r.err == nil {
		all = append(all, r.worker())
	}
	return all, r.end()
}

func (r *reader) worker() Worker {
	w := Worker{
		Queue: r.text(), Name: r.text(), Protocol: r.text(), Address: r.text(), Token: r.text(), Since: r.time(), Seen: r.time(),
		Waiting: r.int(), InFlight: r.int(), Acked: r.int(), Failed: r.int(), Expired: r.int(),
	}
	const leastHeld = 4
	if n := r.count(leastHeld); n > 0 {
		w.Held = make([]HeldMessage, n)
	}
	for i := range w.Held {
		w.Held[i] = HeldMessage{ID: r.text(), Attempt: r.int(), TakenAt: r.time(), Until: r.time()}
	}
	return w
}
