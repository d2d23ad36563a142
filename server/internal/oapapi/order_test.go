package oapapi_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/keyring"
	"github.com/mailboxmq/mailbox/internal/oap"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/server/internal/oapapi"
)

// slowOpening takes a second to open a queue, and less each time.
type slowOpening struct {
	*membox.Backend
	opened int
}

func (s *slowOpening) OpenQueue(ctx context.Context, name string) (driver.Queue, error) {
	s.opened++
	<-time.After(time.Second / time.Duration(s.opened))
	return s.Backend.OpenQueue(ctx, name)
}

// TestSendsStayInOrderWhileQueueIsOpened sends to a queue that the broker has closed: another
// one of the same name has replaced it.
func TestSendsStayInOrderWhileQueueIsOpened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend := &slowOpening{Backend: membox.New(nil)}
		d := newDaemon(t, backend, oapapi.Options{})
		defer d.stop(t)
		d.make(t, "orders")
		r := dialRaw(t, d)
		r.start()
		target := oap.Target{Handle: r.open("orders")}
		if err := backend.DeleteQueue(t.Context(), "orders"); err != nil {
			t.Fatal(err)
		}
		d.make(t, "orders")
		const sends = 20
		for i := range sends + 1 {
			body := fmt.Appendf(nil, "%03d", i)
			r.send(requestHeader(oap.OpSend, uint64(100+i)), nil, oap.AppendOutgoing(oap.AppendSend(nil, target, 1), &driver.Outgoing{Body: body}))
			if i == 0 { // it finds that the queue was deleted
				r.mustNext()
			}
		}
		for range sends {
			if f := r.mustNext(); f.Code != oap.StatusOK {
				t.Fatalf("send: status %d", f.Code)
			}
		}
		q, err := backend.Backend.OpenQueue(t.Context(), "orders")
		if err != nil {
			t.Fatal(err)
		}
		got, err := q.Receive(t.Context(), driver.ReceiveRequest{Max: sends, Visibility: time.Minute})
		if err != nil || len(got) != sends {
			t.Fatalf("received %d messages, error %v", len(got), err)
		}
		for i := range got {
			if want := fmt.Sprintf("%03d", i+1); string(got[i].Body) != want {
				t.Fatalf("message %d is %s, want %s", i, got[i].Body, want)
			}
		}
	})
}

// TestRefusedSendRefusesNoOther sends messages together, one of which is larger than the token
// allows.
func TestRefusedSendRefusesNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ring := keyring.New(keyring.NewKey())
		d := newDaemonWith(t, membox.New(nil), oapapi.Options{}, ring, mint(t, ring, capability.MaxBodyBytes(100)))
		defer d.stop(t)
		d.make(t, "orders")
		r := dialRaw(t, d)
		r.start()
		target := oap.Target{Handle: r.open("orders")}
		var frames []byte
		for i, size := range []int{10, 101, 20} {
			h := requestHeader(oap.OpSend, uint64(100+i))
			frames = oap.AppendFrame(frames, &h, nil, oap.AppendOutgoing(oap.AppendSend(nil, target, 1), &driver.Outgoing{Body: make([]byte, size)}))
		}
		r.write(frames)
		for range 3 {
			f := r.mustNext()
			if refused, want := f.Code != oap.StatusOK, f.Correlation == 101; refused != want {
				t.Errorf("send %d: status %d; want it refused: %v", f.Correlation, f.Code, want)
			}
		}
	})
}
