package httpapi

import (
	"iter"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

func deadLetterRoutes() []Route {
	return []Route{
		{Method: "POST", Path: "/v1/dlq/list", looks: true, serve: (*Handler).deadLetters},
		{Method: "POST", Path: "/v1/dlq/causes", looks: true, serve: (*Handler).causes},
		{Method: "POST", Path: "/v1/dlq/reprocess", serve: (*Handler).redrive},
		{Method: "POST", Path: "/v1/dlq/discard", serve: (*Handler).discard},
		{Method: "POST", Path: "/v1/dlq/purge", serve: (*Handler).purgeDead},
	}
}

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

// searchRequest is what messages are looked for by.
type searchRequest struct {
	OlderThanMS duration `json:"older_than_ms"`
	Reason      string   `json:"reason"`
	Text        string   `json:"text"`
	Group       string   `json:"group"`
	Priority    *int     `json:"priority"`
	Cause       string   `json:"cause"`
	Limit       int      `json:"limit"`
	Cursor      *string  `json:"cursor"` // nil if missing
	WithinMS    duration `json:"within_ms"`
}

func (r *searchRequest) search(attributes map[string]string) broker.Search {
	return broker.Search{
		Query: driver.Query{Attributes: attributes, OlderThan: time.Duration(r.OlderThanMS), Reason: driver.Reason(r.Reason)},
		Text:  r.Text, Group: r.Group, Priority: r.Priority, Cause: r.Cause,
	}
}

type peekRequest struct {
	searchRequest
	Queue      string            `json:"topic"`
	Attributes map[string]string `json:"attrs"`
	States     []string          `json:"states"`
	MessageID  string            `json:"msg_id"`
	Last       int               `json:"last"`
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
	search := r.search(r.Attributes)
	search.Query.ID, search.Query.Limit, search.Query.Last = r.MessageID, r.Limit, r.Last
	for _, state := range r.States {
		search.Query.States = append(search.Query.States, driver.State(state))
	}
	switch {
	case r.Last != 0 && (r.Cursor != nil || search.Selective()):
		return &driver.Error{Code: driver.ErrInvalid, Op: "peek", Queue: r.Queue, Field: "last", Detail: "cannot be combined with a cursor, text, group, priority or cause"}
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

type causesRequest struct {
	searchRequest
	Queue      string            `json:"topic"`
	Attributes map[string]string `json:"attrs"`
}

// causeLine is a cause of dead letters.
type causeLine struct {
	Cause       string `json:"cause"`
	Queue       string `json:"topic"`
	Reason      string `json:"reason"`
	ErrorType   string `json:"error_type,omitempty"`
	Words       string `json:"words"`
	Messages    int    `json:"messages"`
	FirstDeadAt string `json:"first_dead_at"`
	LastDeadAt  string `json:"last_dead_at"`
	MessageID   string `json:"msg_id"`
	LastError   string `json:"last_error,omitempty"`
}

// causesExtent is the last line of a list of causes.
type causesExtent struct {
	Looked   map[driver.State]int `json:"looked"`
	Selected int                  `json:"selected"`
	Causes   int                  `json:"causes"`
	Cursor   string               `json:"cursor"`
}

// causes is POST /v1/dlq/causes.
func (h *Handler) causes(c *call) error {
	var r causesRequest
	if err := c.decode(&r); err != nil {
		return err
	}
	if r.Queue == "" {
		return required("topic")
	}
	survey, cursor := broker.Survey{Search: r.search(r.Attributes), Largest: r.Limit}, ""
	if r.Cursor != nil {
		cursor = *r.Cursor
	}
	if err := survey.Page(cursor, time.Duration(r.WithinMS)); err != nil {
		return err
	}
	causes, err := c.caller.Causes(c.ctx(), r.Queue, &survey)
	if err != nil {
		return err
	}
	out := &lines{call: c}
	for i := range causes {
		cause := &causes[i]
		if err := out.addValue(causeLine{
			Cause: cause.ID, Queue: r.Queue, Reason: string(cause.Reason), ErrorType: cause.ErrorType, Words: cause.Words, Messages: cause.Messages,
			FirstDeadAt: timeText(cause.First), LastDeadAt: timeText(cause.Last), MessageID: cause.MessageID, LastError: cause.LastError,
		}); err != nil {
			return out.end(err)
		}
	}
	return out.end(out.addValue(causesExtent{survey.Looked, survey.Selected, survey.Found, survey.Cursor}))
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
