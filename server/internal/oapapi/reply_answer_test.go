package oapapi_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/diskbox"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/keyring"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/reply"
	"github.com/mailboxmq/mailbox/server/internal/oapapi"
)

// TestAnswerAcksItsRequest (RPL-2, RPL-3) answers requests through the wire, in memory and on disk: a request
// is acked with its answer, also if its slot accepts none any more, and not if the answer cannot be stored.
func TestAnswerAcksItsRequest(t *testing.T) {
	for name, open := range map[string]func(*testing.T) driver.Opener{
		"memory": func(*testing.T) driver.Opener { return membox.New(nil) },
		"disk": func(t *testing.T) driver.Opener {
			backend, err := diskbox.Open(t.Context(), t.TempDir(), nil)
			if err != nil {
				t.Fatal(err)
			}
			return backend
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := newAsking(t, open(t))
			remote := newListening(t, d)
			d.make(t, "sums")
			box := openSums(t, remote.Backend)
			client := reply.NewClient[[]int, []byte](box, remote.Replies(), &reply.Options[[]byte]{Codec: mailbox.Bytes()})
			answer := func(m *mailbox.Message[[]int], text string) error {
				return mailbox.ReplyWith(t.Context(), m, mailbox.Bytes(), []byte(text))
			}
			ask := func() (*reply.Future[[]byte], *mailbox.Message[[]int]) {
				t.Helper()
				future, err := client.Send(t.Context(), []int{1})
				if err != nil {
					t.Fatal(err)
				}
				got, err := box.Receive(t.Context(), mailbox.WithVisibility(time.Hour))
				if err != nil || len(got) != 1 {
					t.Fatal(got, err)
				}
				return future, got[0]
			}
			expect := func(what string, err error, code driver.Code, inFlight int) {
				t.Helper()
				if code == "" && err != nil || code != "" && !errors.Is(err, code) {
					t.Errorf("%s: got %v, want %q", what, err, code)
				}
				if stats, err := box.Stats(t.Context()); err != nil || stats.InFlight != inFlight || stats.Ready != 0 {
					t.Errorf("%s: %+v, %v, want %d in flight", what, stats, err, inFlight)
				}
			}
			read := func(future *reply.Future[[]byte], want string) {
				t.Helper()
				if got, err := future.Wait(t.Context()); err != nil || string(got) != want {
					t.Errorf("got the answer %q, %v; want %q", got, err, want)
				}
			}

			future, m := ask()
			expect("answer", answer(m, "one"), "", 0)
			expect("answer again", answer(m, "two"), mailbox.ErrReplyAlreadySent, 0)
			read(future, "one")

			future, m = ask()
			id, _ := driver.SlotID(m.ReplyTo)
			if err := remote.Replies().Resolve(t.Context(), id, driver.Answer{Body: []byte("first")}); err != nil {
				t.Fatal(err)
			}
			expect("answer what was answered", answer(m, "second"), mailbox.ErrReplyAlreadySent, 0)
			read(future, "first")

			future, m = ask()
			if err := future.Cancel(t.Context()); err != nil {
				t.Fatal(err)
			}
			expect("answer what was cancelled", answer(m, "late"), mailbox.ErrReplyCancelled, 0)

			future, m = ask()
			id, _ = driver.SlotID(m.ReplyTo)
			if err := remote.Replies().Delete(t.Context(), id); err != nil {
				t.Fatal(err)
			}
			expect("answer a slot that is gone", answer(m, "late"), mailbox.ErrReplyExpired, 0)

			future, m = ask()
			if err := m.DeadLetter(t.Context(), mailbox.ReasonFatal, nil); err != nil {
				t.Fatal(err)
			}
			expect("answer a dead letter", answer(m, "sorry"), "", 0)
			read(future, "sorry")

			future, m = ask()
			limits := d.broker.Limits()
			limits.MaxPayloadBytes = 1 << 10
			if err := d.broker.SetLimits(limits); err != nil {
				t.Fatal(err)
			}
			expect("answer too large", answer(m, string(make([]byte, 2<<10))), mailbox.ErrTooLarge, 1)
			expect("answer after that", answer(m, "small"), "", 0)
			read(future, "small")

			future, m = ask()
			if err := box.Queue().Ack(t.Context(), []driver.Receipt{m.Receipt}); err != nil {
				t.Fatal(err)
			}
			expect("answer a request that is gone", answer(m, "stored"), mailbox.ErrReceiptExpired, 0)
			read(future, "stored")
		})
	}
}

// TestAnswerNeedsBothOperations has tokens that may either answer or ack.
func TestAnswerNeedsBothOperations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ring := keyring.New(keyring.NewKey())
		as := func(operations ...capability.Operation) string {
			token, err := ring.Mint("", capability.Operations(operations...), capability.Queues(capability.AnyQueue()), capability.ExpiresAt(time.Now().Add(24*time.Hour)))
			if err != nil {
				t.Fatal(err)
			}
			return token.Reveal()
		}
		d := newDaemonWith(t, membox.New(nil), oapapi.Options{}, ring, as(capability.OpSend, capability.OpAsk, capability.OpStats))
		d.make(t, "sums")
		asking := newRemote(t, d, d.client())
		box := openSums(t, asking.Backend)
		for _, c := range []struct {
			operation capability.Operation
			state     driver.SlotState
		}{{capability.OpAck, driver.SlotPending}, {capability.OpAnswer, driver.SlotResolved}} {
			future, err := reply.NewClient[[]int, int](box, asking.Replies(), nil).Send(t.Context(), []int{1})
			if err != nil {
				t.Fatal(err)
			}
			d.token = as(capability.OpRecv, c.operation)
			answering := d.client()
			work := openSums(t, answering)
			got, err := work.Receive(t.Context(), mailbox.WithVisibility(time.Hour))
			if err != nil || len(got) != 1 {
				t.Fatal(got, err)
			}
			if err := mailbox.Reply(t.Context(), got[0], 1); !errors.Is(err, driver.ErrForbidden) || got[0].Settled() {
				t.Errorf("a token for %s: got %v, settled %t", c.operation, err, got[0].Settled())
			}
			if slot, err := asking.Replies().Get(t.Context(), future.ID()); err != nil || slot.State != c.state {
				t.Errorf("a token for %s: the slot is %s, %v; want %s", c.operation, slot.State, err, c.state)
			}
			_ = errors.Join(work.Close(), answering.Close())
		}
		if stats, err := box.Stats(t.Context()); err != nil || stats.InFlight != 2 {
			t.Errorf("%+v, %v", stats, err)
		}
	})
}
