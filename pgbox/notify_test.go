package pgbox

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/pgtest"
)

// TestLostNoticeCostsSecondsNotMessages receives, with a connection that listens, what a process sent whose notices are lost.
func TestLostNoticeCostsSecondsNotMessages(t *testing.T) {
	t.Parallel()
	const most = 10 * lookInterval // the machine may be busy; without notices the wait would last a minute
	pool, schema := pgtest.Shared(t).Pool(t), pgtest.Schema()
	b := open(t, pool, &Options{Schema: schema})
	q, err := b.OpenQueue(t.Context(), "orders")
	ok(t, err)
	silent, err := open(t, pool, &Options{Schema: schema, PollOnly: true}).OpenQueue(t.Context(), "orders") // it sends none
	ok(t, err)
	for range 3 {
		received := make(chan time.Time, 1)
		go func() {
			got, err := q.Receive(t.Context(), driver.ReceiveRequest{Max: 1, Visibility: hold, Wait: time.Minute})
			if err != nil || len(got) != 1 {
				t.Errorf("received %d messages, %v; want 1", len(got), err)
			}
			received <- time.Now()
		}()
		for !b.notices.active() || q.(*handle).waiters.Len() == 0 {
			<-time.After(time.Millisecond)
		}
		sendOne(t, silent, driver.Outgoing{Body: []byte("unannounced")})
		sent := time.Now()
		if took := (<-received).Sub(sent); took > most {
			t.Errorf("a message without a notice was received after %v, want at most %v", took, most)
		}
	}
}

// TestNoticesAreCoalescedAndNeverTheCallers changes a queue all the time, then by a transaction, and counts the notices that the server
// passes on, and looks which sessions they are of.
func TestNoticesAreCoalescedAndNeverTheCallers(t *testing.T) {
	t.Parallel()
	b, q := txQueue(t, driver.Config{})
	listener, err := pgx.ConnectConfig(t.Context(), b.pool.Config().ConnConfig.Copy())
	ok(t, err)
	defer func() { _ = listener.Close(context.WithoutCancel(t.Context())) }()
	_, err = listener.Exec(t.Context(), "LISTEN "+pgx.Identifier{b.notices.channel}.Sanitize(), pgx.QueryExecModeSimpleProtocol)
	ok(t, err)
	heard := func() (all []*pgconn.Notification) {
		for { // until none comes for a while
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			notice, err := listener.WaitForNotification(ctx)
			cancel()
			if errors.Is(err, context.DeadlineExceeded) {
				return all
			}
			ok(t, err)
			all = append(all, notice)
		}
	}
	began := time.Now()
	for time.Since(began) < time.Second {
		b.changed(t.Context(), q.(*handle).qid, 1)
		<-time.After(100 * time.Microsecond)
	}
	most := int(time.Since(began)/noticeInterval) + 2
	if n := len(heard()); n == 0 || n > most {
		t.Errorf("changes during a second made %d notices, want 1 to %d", n, most)
	}
	caller, err := pgx.ConnectConfig(t.Context(), b.pool.Config().ConnConfig.Copy()) // a session that makes no other calls
	ok(t, err)
	defer func() { _ = caller.Close(context.WithoutCancel(t.Context())) }()
	tx, err := caller.Begin(t.Context())
	ok(t, err)
	_, err = q.Send(InTx(t.Context(), tx), outgoing(strings.Split(strings.Repeat("x", 10), "")...))
	ok(t, err)
	ok(t, tx.Commit(t.Context()))
	collect(t, q)
	notices := heard()
	if len(notices) == 0 {
		t.Error("no notice tells of messages of a transaction")
	}
	for _, notice := range notices {
		if notice.PID == caller.PgConn().PID() {
			t.Error("the transaction of the caller made a notice")
		}
	}
}
