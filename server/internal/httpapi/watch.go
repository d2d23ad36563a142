package httpapi

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/mailboxmq/mailbox/server/internal/broker"
)

type watchQuery struct {
	Queues  []string `json:"queue"`
	EveryMS duration `json:"every_ms"`
}

// watchEvent is the data of an event of a watch.
type watchEvent struct {
	At      time.Time      `json:"at"`
	Queues  []watchedQueue `json:"queues"`
	LeftOut int            `json:"left_out,omitempty"`
}

// A watchedQueue has the figures of a queue, or why there are none.
type watchedQueue struct {
	Queue string     `json:"topic"`
	Error *errorBody `json:"error,omitempty"`
	*watchedFigures
}

type watchedFigures struct {
	statsResponse
	OldestReadyMS int64    `json:"oldest_ready_ms"`
	PerSecond     rateBody `json:"per_second"`
}

type rateBody struct {
	Sent      float64 `json:"sent"`
	Delivered float64 `json:"delivered"`
	Acked     float64 `json:"acked"`
	Failed    float64 `json:"failed"`
}

// watch is GET /v1/watch: what queues are like, as server-sent events, until the client goes away, its
// token is not valid any more, or the daemon drains. The last event says why.
func (h *Handler) watch(c *call) error {
	var query watchQuery
	if err := c.decodeQuery(&query); err != nil {
		return err
	}
	if query.Queues == nil {
		return required("queue")
	}
	w, err := c.caller.Watch(c.ctx(), broker.WatchRequest{Queues: query.Queues, Every: time.Duration(query.EveryMS)})
	if err != nil {
		return err
	}
	defer w.Close()
	for {
		event, err := w.Next(c.ctx())
		switch {
		case c.ctx().Err() != nil:
			return nil // the client has disconnected
		case err != nil && c.status == 0:
			return err
		case err != nil:
			body, _ := c.errorBody(err)
			_ = c.writeEvent("end", body) // the client may have disconnected
			return nil
		}
		name, data := "queues", watchEvent{At: event.At, Queues: make([]watchedQueue, 0, len(event.Queues)), LeftOut: event.LeftOut}
		if len(event.Queues) == 0 && c.status != 0 {
			name = "heartbeat"
		}
		for i := range event.Queues {
			data.Queues = append(data.Queues, c.watchedQueue(&event.Queues[i]))
		}
		if err := c.writeEvent(name, data); err != nil {
			return nil // the client has disconnected, or does not read
		}
	}
}

func (c *call) watchedQueue(q *broker.WatchedQueue) watchedQueue {
	if q.Err != nil {
		body, _ := c.errorBody(q.Err)
		body.CorrID = ""
		return watchedQueue{Queue: q.Name, Error: &body}
	}
	return watchedQueue{Queue: q.Name, watchedFigures: &watchedFigures{
		statsResponse{q.Ready, q.Delayed, q.InFlight, q.Dead, q.Paused, q.Throttled}, q.OldestReady.Milliseconds(), rateBody(q.PerSecond),
	}}
}

// writeEvent writes a server-sent event. The first begins the answer. The deadline for reading it ends
// with it: over HTTP/2 one that passes between events would reset the stream.
func (c *call) writeEvent(name string, data any) error {
	text, err := json.Marshal(data)
	if err != nil {
		return err
	}
	if c.status == 0 {
		c.writer.Header().Set("X-Accel-Buffering", "no") // proxies pass events on at once
		c.begin(http.StatusOK, "text/event-stream")
	}
	c.allowWrite()
	defer func() { _ = c.control.SetWriteDeadline(time.Time{}) }()
	event := append(append(append([]byte("event: "+name+"\ndata: "), text...), '\n'), '\n')
	if _, err := c.writer.Write(event); err != nil { //nolint:gosec // JSON, with a Content-Type and nosniff
		return err
	}
	return c.control.Flush()
}
