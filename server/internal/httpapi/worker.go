package httpapi

import (
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

// headerWorker is what the client calls itself when it receives.
const headerWorker = "X-Mailbox-Worker"

// asWorker names the caller of a receive: as it calls itself, or else by the program that it uses.
func (c *call) asWorker() (err error) {
	name := c.request.Header.Get(headerWorker)
	if name == "" {
		name = broker.WorkerName(c.request.UserAgent())
	}
	c.caller, err = c.caller.Named(name, "http")
	return err
}

type workersQuery struct {
	Queue string `json:"topic"`
}

type workersResponse struct {
	Workers []workerLine `json:"workers"`
}

// A workerLine is a receiver of a queue.
type workerLine struct {
	Queue    string     `json:"topic"`
	Name     string     `json:"name"`
	Protocol string     `json:"protocol"`
	Address  string     `json:"address,omitempty"`
	Token    string     `json:"token"`
	Since    time.Time  `json:"since"`
	Seen     time.Time  `json:"seen"`
	Waiting  int        `json:"waiting"`
	InFlight int        `json:"in_flight"`
	Acked    int        `json:"acked"`
	Failed   int        `json:"failed"`
	Expired  int        `json:"expired"`
	Held     []heldLine `json:"held,omitempty"`
}

type heldLine struct {
	MessageID string      `json:"msg_id"`
	Attempt   int         `json:"attempt"`
	TakenAt   time.Time   `json:"taken_at"`
	Until     time.Time   `json:"until"`
	Progress  *reportLine `json:"progress,omitempty"`
}

// progress is what a receiver reports about its work on a message.
type progress struct {
	Fraction *float64 `json:"fraction"`
	Text     string   `json:"text"`
}

// report returns the report for the broker; nil for nothing.
func (p *progress) report() *driver.Progress {
	if p == nil {
		return nil
	}
	report := driver.Progress{Fraction: -1, Text: p.Text}
	if p.Fraction != nil {
		report.Fraction = *p.Fraction
	}
	return &report
}

// A reportLine is a report that the daemon has got.
type reportLine struct {
	Fraction *float64  `json:"fraction,omitempty"`
	Text     string    `json:"text,omitempty"`
	At       time.Time `json:"at"`
}

// reportOf returns the line of a report; nil for nothing.
func reportOf(p *broker.Progress) *reportLine {
	if p == nil {
		return nil
	}
	line := reportLine{Text: p.Text, At: p.At.UTC()}
	if p.Fraction >= 0 {
		line.Fraction = &p.Fraction
	}
	return &line
}

// workers is GET /v1/workers.
func (h *Handler) workers(c *call) error {
	var query workersQuery
	if err := c.decodeQuery(&query); err != nil {
		return err
	}
	workers, err := c.caller.Workers(c.ctx(), query.Queue)
	if err != nil {
		return err
	}
	response := workersResponse{Workers: make([]workerLine, len(workers))}
	for i := range workers {
		w := &workers[i]
		line := workerLine{
			Queue: w.Queue, Name: w.Name, Protocol: w.Protocol, Address: w.AddressText(), Token: w.Token.String(), Since: w.Since.UTC(), Seen: w.Seen.UTC(),
			Waiting: w.Waiting, InFlight: w.InFlight, Acked: w.Acked, Failed: w.Failed, Expired: w.Expired,
		}
		for _, held := range w.Held {
			line.Held = append(line.Held, heldLine{held.ID, held.Attempt, held.TakenAt.UTC(), held.Until.UTC(), reportOf(held.Progress)})
		}
		response.Workers[i] = line
	}
	return c.ok(response)
}
