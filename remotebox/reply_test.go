package remotebox

import (
	"errors"
	"net"
	"slices"
	"testing"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/oap"
)

// TestOldDaemonAnswersAndAcksInTurn: a daemon of an earlier version does not know ANSWER.
func TestOldDaemonAnswersAndAcksInTurn(t *testing.T) {
	for _, c := range []struct {
		name  string
		state driver.Code
		codes []uint16
	}{
		{"answered", "", []uint16{oap.OpAnswer, oap.OpResolveSlot, oap.OpAck}},
		{"answered before", driver.ErrReplyAlreadySent, []uint16{oap.OpAnswer, oap.OpResolveSlot, oap.OpAck}},
		{"no room", driver.ErrFull, []uint16{oap.OpAnswer, oap.OpResolveSlot}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var codes []uint16
			s := &script{answer: func(nc net.Conn, f *oap.Frame) bool {
				codes = append(codes, f.Code)
				switch {
				case f.Code == oap.OpAnswer:
					respond(nc, oap.StatusUnsupported, f, oap.AppendError(nil, &driver.Error{Code: driver.ErrUnsupported}))
				case f.Code == oap.OpResolveSlot && c.state != "":
					respond(nc, oap.StatusOf(c.state), f, oap.AppendError(nil, &driver.Error{Code: c.state}))
				default:
					respond(nc, oap.StatusOK, f, oap.AppendFailures(nil, nil))
				}
				return true
			}}
			withScript(t, s, func(t *testing.T, b *Backend) {
				q, err := b.OpenQueue(t.Context(), "requests")
				if err != nil {
					t.Fatal(err)
				}
				store := b.Replies().(driver.LinkedReplyStore)
				acking, stored, err := store.ResolveWithAck(t.Context(), "a", driver.Answer{Body: []byte("tea")})
				if err != nil {
					t.Fatal(err)
				}
				ackErr, err := q.Ack(acking, []driver.Receipt{{Handle: "r"}}), stored()
				if c.state == "" && err != nil || c.state != "" && !errors.Is(err, c.state) || (ackErr == nil) != slices.Contains(c.codes, oap.OpAck) || !slices.Equal(codes, c.codes) {
					t.Errorf("stored %v, acked %v, requests %x", err, ackErr, codes)
				}
			})
		})
	}
}
