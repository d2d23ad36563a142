package oapapi

import (
	"fmt"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/oap"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

// frameCodes are the codes of the frames that elements come in: last is that of the last
// frame, more that of a frame before others, and part that of one whose last element goes on
// in the next.
type frameCodes struct {
	flags            oap.Flags
	more, part, last uint16
}

var (
	receiveFrames = frameCodes{oap.Response, oap.StatusMore, oap.StatusPart, oap.StatusOK}
	pushFrames    = frameCodes{oap.Event, oap.EventDeliver, oap.EventDeliverPart, oap.EventDeliver}
	listFrames    = frameCodes{oap.Response, oap.StatusMore, oap.StatusPart, oap.StatusMore}
)

// frameLimit returns how long the frames for this client may be. A client that does not join
// elements is of an earlier version, and reads longer frames.
func (c *conn) frameLimit() int {
	if c.joins.Load() {
		return oap.MaxFrameBytes
	}
	return oap.HeaderBytes + oap.EarlierPayloadBytes
}

// tooLong says that a client that does not join elements cannot get one of this many bytes.
func tooLong(bytes int) *driver.Error {
	return &driver.Error{Code: driver.ErrTooLarge, Field: "len", Detail: fmt.Sprintf(
		"the message takes %d bytes, and a frame for clients that do not join parts (JOIN) has at most %d; upgrade the client",
		bytes, oap.HeaderBytes+oap.EarlierPayloadBytes)}
}

// deliverable returns the deliveries that the client can read, and the error for the first of
// the others. Those stay leased, and are ready again when their visibility ends: they count
// as delivered, so that a queue with a delivery limit dead-letters them.
func (c *conn) deliverable(q *queue, got []broker.Delivery) (kept []broker.Delivery, err error) {
	if c.joins.Load() {
		return got, nil
	}
	kept = got
	for i := range got {
		bytes := 0
		if len(got[i].Body) > plainBody {
			d := q.caller.delivery(&got[i])
			bytes = len(oap.AppendDelivery(nil, &d))
		}
		switch {
		case bytes > oap.EarlierPayloadBytes:
			e := tooLong(bytes)
			e.Op, e.Queue, e.MessageID = "receive", q.name, got[i].ID
			c.server.options.Logger.Warn("oap.too_long", "queue", q.name, "msg_id", got[i].ID, "bytes", bytes, "client", c.net.RemoteAddr())
			if err == nil {
				kept, err = append([]broker.Delivery(nil), got[:i]...), e
			}
		case err != nil:
			kept = append(kept, got[i])
		}
	}
	return kept, err
}

// plainBody is the size of bodies that fit in the frames of earlier versions with everything
// else that a delivery can have.
const plainBody = 1 << 20
