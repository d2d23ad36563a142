package httpapi

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/envelope"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

type receiveRequest struct {
	Queue        string    `json:"topic"`
	VisibilityMS *duration `json:"visibility_ms"`
	MaxMessages  *int      `json:"max_messages"`
	MaxBytes     *int      `json:"max_bytes"`
	WaitMS       duration  `json:"wait_ms"`
	// Details asks for fields that the envelope does not have.
	Details bool `json:"details"`
}

func (h *Handler) readReceive(c *call) (request receiveRequest, req driver.ReceiveRequest, err error) {
	if err := c.decode(&request); err != nil {
		return request, req, err
	}
	if request.Queue == "" {
		return request, req, required("topic")
	}
	if err := c.asWorker(); err != nil {
		return request, req, err
	}
	req = driver.ReceiveRequest{
		Max: h.options.MaxMessages, MaxBytes: h.options.MaxBytes, Visibility: h.options.Visibility, Wait: time.Duration(request.WaitMS),
	}
	if request.VisibilityMS != nil {
		req.Visibility = time.Duration(*request.VisibilityMS)
	}
	if request.MaxMessages != nil {
		req.Max = *request.MaxMessages
	}
	if request.MaxBytes != nil {
		req.MaxBytes = *request.MaxBytes
	}
	return request, req, nil
}

// deliveryDetails are the fields of a delivery that its envelope does not have.
type deliveryDetails struct {
	Group           string `json:"group,omitempty"`
	Priority        int    `json:"priority,omitempty"`
	ReplyTo         string `json:"reply_to,omitempty"`
	CorrelationID   string `json:"correlation_id,omitempty"`
	EnqueuedAt      string `json:"enqueued_at,omitempty"`
	FirstReceivedAt string `json:"first_received_at,omitempty"`
	LastError       string `json:"last_error,omitempty"`
	SlotPending     bool   `json:"slot_pending,omitempty"`
}

// timeText returns a time in RFC 3339, empty for the zero time.
func timeText(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

// appendDelivery appends a delivery in JSON.
func appendDelivery(b []byte, d *broker.Delivery, details bool) ([]byte, error) {
	delivery := envelope.Delivery{Envelope: d.Envelope(), Body: d.Body, Receipt: d.Receipt}
	b, err := delivery.AppendJSON(b)
	if err != nil || !details {
		return b, err
	}
	more, err := json.Marshal(deliveryDetails{
		Group: d.Group, Priority: d.Priority, ReplyTo: d.ReplyTo, CorrelationID: d.CorrelationID, LastError: d.LastError,
		EnqueuedAt: timeText(d.EnqueuedAt), FirstReceivedAt: timeText(d.FirstReceivedAt), SlotPending: d.SlotPending,
	})
	if err != nil {
		return b, err
	}
	b = append(b[:len(b)-1], `,"details":`...) // before the closing brace
	return append(append(b, more...), '}'), nil
}

// receive is POST /v1/recv.
func (h *Handler) receive(c *call) error {
	request, req, err := h.readReceive(c)
	if err != nil {
		return err
	}
	ctx, leave := h.waiting.enter(c)
	defer leave()
	deliveries, err := c.caller.Receive(ctx, request.Queue, req)
	switch {
	case c.ctx().Err() != nil:
		c.giveBack(request.Queue, deliveries)
		return c.ctx().Err()
	case err != nil && ctx.Err() == nil:
		return err
	}
	b := append(make([]byte, 0, sizeOf(deliveries)), `{"messages":[`...)
	shown, err := deliveries[:0], error(nil)
	for i := range deliveries {
		end := len(b)
		if len(shown) > 0 {
			b = append(b, ',')
		}
		if b, err = appendDelivery(b, &deliveries[i], request.Details); err != nil {
			b = b[:end]
			c.unencodable(&deliveries[i], err)
			continue
		}
		shown = append(shown, deliveries[i])
	}
	if len(shown) == 0 && err != nil {
		return err
	}
	c.begin(http.StatusOK, "application/json")
	if _, err = c.writer.Write(append(b, "]}\n"...)); err != nil { //nolint:gosec // JSON, with a Content-Type and nosniff
		c.giveBack(request.Queue, shown)
	}
	return nil
}

// sizeOf estimates the length of deliveries in JSON.
func sizeOf(deliveries []broker.Delivery) int {
	size := 64
	for i := range deliveries {
		size += 1024 + len(deliveries[i].Body)*4/3
	}
	return size
}

// unencodable logs a delivery that cannot be answered. It is not released, because it would
// be the next one again: it counts, and comes back when its lease ends.
func (c *call) unencodable(d *broker.Delivery, err error) {
	size := len(d.Body) + len(d.ReplyTo) + len(d.Group) + len(d.CorrelationID)
	for key, value := range d.Attributes {
		size += len(key) + len(value)
	}
	c.handler.log.LogAttrs(c.ctx(), slog.LevelError, "message.unencodable", slog.String("corr_id", c.corr),
		slog.String("queue", d.Queue), slog.String("msg_id", d.ID), slog.Int("bytes", size), slog.String("error", err.Error()))
}

// giveBack releases deliveries of a disconnected client.
func (c *call) giveBack(queue string, deliveries []broker.Delivery) {
	_ = c.caller.GiveBack(context.WithoutCancel(c.ctx()), queue, deliveries) // on an error they come back when their leases end
}

// streamBatch is how many messages a stream leases at once: few, because they are in
// flight while they wait to be written.
const streamBatch = 32

// receiveStream is POST /v1/recv/stream: it writes messages as they come, one per line.
// It ends after max_messages, or when none came for wait_ms. It leases the next messages
// only when the client has read the previous ones.
func (h *Handler) receiveStream(c *call) error {
	request, req, err := h.readReceive(c)
	if err != nil {
		return err
	}
	left := -1
	if request.MaxMessages != nil {
		if left = *request.MaxMessages; left < 1 {
			return schemaError("max_messages", "must be at least 1")
		}
	}
	out := &lines{call: c}
	for left != 0 {
		req.Max = streamBatch
		if left > 0 {
			req.Max = min(left, streamBatch)
		}
		deliveries, err := c.caller.Receive(c.ctx(), request.Queue, req)
		if err != nil || len(deliveries) == 0 {
			return out.end(err)
		}
		if left > 0 {
			left -= len(deliveries)
		}
		if unread, err := c.writeAll(out, deliveries, request.Details); err != nil {
			c.giveBack(request.Queue, unread)
			return nil // the client has disconnected
		}
		c.answers.Done()
	}
	return out.end(nil)
}

// writeAll writes deliveries. If the client has disconnected, unread are those that it cannot have
// received.
func (c *call) writeAll(out *lines, deliveries []broker.Delivery, details bool) (unread []broker.Delivery, err error) {
	unread = deliveries[:0]
	for i := range deliveries {
		line, err := appendDelivery(nil, &deliveries[i], details)
		if err != nil {
			c.unencodable(&deliveries[i], err)
			continue
		}
		unread = append(unread, deliveries[i])
		if err := out.add(line); err != nil {
			return append(unread, deliveries[i+1:]...), err
		}
		if len(out.buffer) == 0 { // this one and all before it were written
			unread = unread[:0]
		}
	}
	if err := out.flush(); err != nil {
		return unread, err
	}
	return nil, c.ctx().Err()
}
