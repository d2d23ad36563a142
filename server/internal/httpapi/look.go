package httpapi

import (
	"iter"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

// lookedLine is a message that was read without a lease.
type lookedLine struct {
	MessageID       string            `json:"msg_id"`
	Queue           string            `json:"topic"`
	State           string            `json:"state"`
	SentAt          string            `json:"ts,omitempty"`
	IdemKey         string            `json:"idem_key"`
	PayloadHash     string            `json:"payload_hash,omitempty"`
	HashChain       string            `json:"hash_chain,omitempty"`
	CorrID          string            `json:"corr_id,omitempty"`
	Attributes      map[string]string `json:"attrs"`
	Payload         []byte            `json:"payload_b64"`
	Damaged         bool              `json:"damaged,omitempty"`
	Attempt         int               `json:"attempt"`
	Group           string            `json:"group,omitempty"`
	Priority        int               `json:"priority,omitempty"`
	ReplyTo         string            `json:"reply_to,omitempty"`
	CorrelationID   string            `json:"correlation_id,omitempty"`
	EnqueuedAt      string            `json:"enqueued_at,omitempty"`
	FirstReceivedAt string            `json:"first_received_at,omitempty"`
	LastError       string            `json:"last_error,omitempty"`
	DueAt           string            `json:"due_at,omitempty"`
	Source          string            `json:"source,omitempty"`
	Reason          string            `json:"reason,omitempty"`
	ErrorType       string            `json:"error_type,omitempty"`
	Cause           string            `json:"cause,omitempty"`
	DeadAt          string            `json:"dead_at,omitempty"`
	Redrives        int               `json:"redrives,omitempty"`
}

func lineOf(l *broker.Peeked) lookedLine {
	line := lookedLine{
		MessageID: l.ID, Queue: l.Queue, State: string(l.State), IdemKey: l.Seal.IdemKey, CorrID: l.Seal.CorrelationID(&l.Message),
		Attributes: l.Attributes, Payload: l.Body, Damaged: l.Damaged, Attempt: l.Deliveries, Group: l.Group, Priority: l.Priority,
		ReplyTo: l.ReplyTo, CorrelationID: l.CorrelationID, EnqueuedAt: timeText(l.EnqueuedAt),
		FirstReceivedAt: timeText(l.FirstReceivedAt), LastError: l.LastError, DueAt: timeText(l.DueAt), Source: l.Source,
		Reason: string(l.Reason), ErrorType: l.ErrorType, DeadAt: timeText(l.DeadAt), Redrives: l.Redrives,
	}
	if l.State == driver.StateDead {
		line.Cause, _ = l.Cause()
	}
	if !l.Damaged {
		line.SentAt = l.Seal.SentAt.UTC().Format(timeLayout)
		line.PayloadHash, line.HashChain = l.Seal.PayloadHash(l.Body).String(), l.Seal.HashChain.String()
	}
	if line.Attributes == nil {
		line.Attributes = map[string]string{}
	}
	if line.Payload == nil {
		line.Payload = []byte{}
	}
	return line
}

// list streams messages, up to limit lines; 0 means no limit. last, if it is not nil, returns a value for
// the last line, or nil.
func (c *call) list(messages iter.Seq2[broker.Peeked, error], limit int, last func() any) error {
	out := &lines{call: c}
	n := 0
	for looked, err := range messages {
		if err != nil {
			return out.end(err)
		}
		if err := out.addValue(lineOf(&looked)); err != nil {
			return out.end(err)
		}
		if n++; n == limit {
			break
		}
	}
	if last != nil {
		if line := last(); line != nil {
			return out.end(out.addValue(line))
		}
	}
	return out.end(nil)
}

type deadLettersRequest struct {
	Queue string `json:"topic"`
	Limit int    `json:"limit"`
}

// deadLetters is POST /v1/dlq/list.
func (h *Handler) deadLetters(c *call) error {
	var r deadLettersRequest
	if err := c.decode(&r); err != nil {
		return err
	}
	switch {
	case r.Queue == "":
		return required("topic")
	case r.Limit < 0:
		return schemaError("limit", "is negative; 0 means no limit")
	}
	return c.list(c.caller.DeadLetters(c.ctx(), r.Queue), r.Limit, nil)
}

type peekRequest struct {
	Queue       string            `json:"topic"`
	States      []string          `json:"states"`
	MessageID   string            `json:"msg_id"`
	Attributes  map[string]string `json:"attrs"`
	OlderThanMS duration          `json:"older_than_ms"`
	Reason      string            `json:"reason"`
	Text        string            `json:"text"`
	Group       string            `json:"group"`
	Priority    *int              `json:"priority"`
	Limit       int               `json:"limit"`
	Last        int               `json:"last"`
	Cursor      *string           `json:"cursor"` // nil if missing
	WithinMS    duration          `json:"within_ms"`
}

// lookedExtent is the last line of a search with a cursor: how far it looked, and where the next one
// goes on; "" at the end.
type lookedExtent struct {
	Looked map[driver.State]int `json:"looked"`
	Cursor string               `json:"cursor"`
}

// peek is POST /v1/peek.
func (h *Handler) peek(c *call) error {
	var r peekRequest
	if err := c.decode(&r); err != nil {
		return err
	}
	if r.Queue == "" {
		return required("topic")
	}
	return h.peekFor(c, &r)
}

func (h *Handler) peekFor(c *call, r *peekRequest) error {
	search := broker.Search{
		Query: driver.Query{ID: r.MessageID, Attributes: r.Attributes, OlderThan: time.Duration(r.OlderThanMS), Reason: driver.Reason(r.Reason), Limit: r.Limit, Last: r.Last},
		Text:  r.Text, Group: r.Group, Priority: r.Priority,
	}
	for _, state := range r.States {
		search.Query.States = append(search.Query.States, driver.State(state))
	}
	switch {
	case r.Last != 0 && (r.Cursor != nil || search.Selective()):
		return &driver.Error{Code: driver.ErrInvalid, Op: "peek", Queue: r.Queue, Field: "last", Detail: "cannot be combined with a cursor, text, group or priority"}
	case r.Cursor != nil:
		if err := search.Page(*r.Cursor, time.Duration(r.WithinMS)); err != nil {
			return err
		}
	case r.WithinMS != 0:
		return schemaError("within_ms", "needs a cursor; \"\" is the beginning")
	case !search.Selective():
		return c.list(c.caller.Peek(c.ctx(), r.Queue, search.Query), 0, nil)
	}
	return c.list(c.caller.Search(c.ctx(), r.Queue, &search), 0, func() any {
		if r.Cursor == nil {
			return nil
		}
		return lookedExtent{search.Looked, search.Cursor}
	})
}

type redriveRequest struct {
	Queue string    `json:"topic"`
	IDs   *[]string `json:"msg_ids"`
	Limit int       `json:"limit"`
}

// redrive is POST /v1/dlq/reprocess.
func (h *Handler) redrive(c *call) error {
	var r redriveRequest
	if err := c.decode(&r); err != nil {
		return err
	}
	if r.Queue == "" {
		return required("topic")
	}
	var ids []string
	if r.IDs != nil {
		ids = *r.IDs
	}
	moved, err := c.caller.Redrive(c.ctx(), r.Queue, ids, r.Limit)
	if err != nil {
		c.failAfter(err, moved)
		return nil
	}
	return c.ok(struct {
		Moved int `json:"moved"`
	}{moved})
}

type discardRequest struct {
	Queue string    `json:"topic"`
	IDs   *[]string `json:"msg_ids"` // nil if missing
}

type removedResponse struct {
	Removed int `json:"removed"`
}

// discard is POST /v1/dlq/discard.
func (h *Handler) discard(c *call) error {
	var r discardRequest
	if err := c.decode(&r); err != nil {
		return err
	}
	if r.Queue == "" {
		return required("topic")
	}
	if r.IDs == nil {
		return required("msg_ids")
	}
	return c.answerRemoved(c.caller.Discard(c.ctx(), r.Queue, *r.IDs))
}

func (c *call) answerRemoved(removed int, err error) error {
	if err != nil {
		return err
	}
	return c.ok(removedResponse{removed})
}

type lifeRequest struct {
	Queue     string `json:"topic"`
	MessageID string `json:"msg_id"`
}

type lifeResponse struct {
	Message  *lookedLine `json:"message,omitempty"`
	Events   []lifeEvent `json:"events"`
	Progress *reportLine `json:"progress,omitempty"`
}

type lifeEvent struct {
	At      string `json:"at"`
	Kind    string `json:"kind"`
	By      string `json:"by,omitempty"`
	Attempt int    `json:"attempt,omitempty"`
	Note    string `json:"note,omitempty"`
}

// life is POST /v1/life: what happened to one message.
func (h *Handler) life(c *call) error {
	var r lifeRequest
	if err := c.decode(&r); err != nil {
		return err
	}
	switch {
	case r.Queue == "":
		return required("topic")
	case r.MessageID == "":
		return required("msg_id")
	}
	life, err := c.caller.Trace(c.ctx(), r.Queue, r.MessageID)
	if err != nil {
		return err
	}
	response := lifeResponse{Events: []lifeEvent{}, Progress: reportOf(life.Progress)}
	if life.Message != nil {
		line := lineOf(life.Message)
		response.Message = &line
	}
	for _, e := range life.Events {
		event := lifeEvent{At: timeText(e.At), Kind: e.Kind.String(), Attempt: e.Attempt, Note: e.Note}
		if !e.By.IsZero() {
			event.By = e.By.String()
		}
		response.Events = append(response.Events, event)
	}
	return c.ok(response)
}
