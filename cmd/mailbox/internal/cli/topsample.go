package cli

import (
	"context"
	"errors"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

const (
	// topSlow is how often top asks for what changes slowly: the names of queues, and their
	// rates, which the daemon measures this often.
	topSlow = 10 * time.Second
	// topBatch is how many queues that are not on the screen a sample counts at most.
	topBatch = 200
)

// historyBody is the answer of /v1/history.
type historyBody struct {
	EveryMS int64          `json:"every_ms"`
	Points  []historyPoint `json:"points"`
}

type historyPoint struct {
	statsBody
	OldestReadyMS int64 `json:"oldest_ready_ms"`
	Sent          int   `json:"sent"`
	Acked         int   `json:"acked"`
}

// last returns the newest point, or an empty one.
func (h *historyBody) last() historyPoint {
	if len(h.Points) == 0 {
		return historyPoint{}
	}
	return h.Points[len(h.Points)-1]
}

// perSecond returns the rate of a number that was counted between two points.
func (h *historyBody) perSecond(n int) float64 {
	if h.EveryMS == 0 {
		return 0
	}
	return float64(n) * 1000 / float64(h.EveryMS)
}

func (a *api) history(ctx context.Context, queue string, points int) (historyBody, error) {
	var body historyBody
	request := struct {
		queueBody
		Limit int `json:"limit,omitempty"`
	}{queueBody{queue}, points}
	err := a.call(ctx, apiRequest{path: "/v1/history", body: request}, &body)
	return body, err
}

// A topRequest is what top wants to know.
type topRequest struct {
	list    bool     // the names of all queues
	visible []string // queues to count
	others  []string // queues to count if there is time
	measure bool     // the rates of the visible queues
	until   time.Duration

	// The page of a queue: its only visible one.
	page     bool
	state    driver.State
	messages int
	// receivers: its workers are shown, and not its messages.
	receivers bool
}

// A topSample is the answer to a topRequest.
type topSample struct {
	topRequest
	at        time.Time
	names     []string
	counts    map[string]statsBody
	gone      []string // queues that were deleted
	histories map[string]historyBody
	peeked    []messageView
	workers   []workerView
	denied    error // why both are empty
	err       error
}

// sample asks the daemon, for about as long as r.until if many queues are counted.
func (a *api) sample(ctx context.Context, r *topRequest) (s topSample) {
	s = topSample{topRequest: *r, at: time.Now(), counts: make(map[string]statsBody), histories: make(map[string]historyBody)}
	if r.list {
		for name, err := range a.queues(ctx) {
			if err != nil {
				s.err = err
				return s
			}
			s.names = append(s.names, name)
		}
	}
	for _, name := range r.visible {
		if s.err = a.sampleQueue(ctx, &s, name); s.err != nil {
			return s
		}
	}
	for _, name := range r.others {
		if time.Since(s.at) > r.until {
			break
		}
		if s.err = a.sampleCounts(ctx, &s, name); s.err != nil {
			return s
		}
	}
	if r.page && r.receivers {
		s.workers, s.denied = a.workers(ctx, r.visible[0])
	} else if r.page && len(s.gone) == 0 {
		for looked, err := range a.peek(ctx, peekBody{Queue: r.visible[0], States: []string{string(r.state)}, Limit: r.messages}) {
			if err != nil {
				s.denied = err
				break
			}
			s.peeked = append(s.peeked, looked.view())
		}
	}
	return s
}

// sampleQueue counts the messages of a visible queue, and measures its rates if it is time.
func (a *api) sampleQueue(ctx context.Context, s *topSample, name string) error {
	err := a.sampleCounts(ctx, s, name)
	if _, counted := s.counts[name]; err != nil || !counted || !s.measure {
		return err
	}
	points := 1
	if s.page {
		points = 0 // all
	}
	history, err := a.history(ctx, name, points)
	if errors.Is(err, driver.ErrNotFound) {
		return nil
	}
	s.histories[name] = history
	return err
}

func (a *api) sampleCounts(ctx context.Context, s *topSample, name string) error {
	counts, err := a.stats(ctx, name)
	if errors.Is(err, driver.ErrNotFound) {
		s.gone = append(s.gone, name)
		return nil
	}
	if err == nil {
		s.counts[name] = counts
	}
	return err
}
