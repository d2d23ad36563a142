package pgbox

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/mailboxmq/mailbox/internal/backoff"
	"github.com/mailboxmq/mailbox/internal/ident"
)

// notices tell the receives of other processes that a queue has changed. A NOTIFY locks the
// whole database while its transaction commits, so none is part of another transaction: the
// changes of noticeInterval go out in one, in a transaction of their own. A process that dies
// in between sends none, and waiting receives look again within seconds (lookInterval).
type notices struct {
	backend *Backend
	channel string
	self    string // begins the payload, so that a process knows its own

	listening atomic.Bool // whether notices arrive
	listenNow sync.Once

	mu      sync.Mutex // guards the fields below
	pending map[int32]struct{}
	sending bool
}

const (
	noticeInterval = 10 * time.Millisecond
	// maxNoticeBytes keeps payloads below the 8000 bytes of the server.
	maxNoticeBytes = 7000
)

func newNotices(b *Backend) *notices {
	return &notices{
		backend: b, channel: "mailbox_" + b.options.Schema, self: strconv.FormatUint(ident.Nonce(), 36), pending: make(map[int32]struct{}),
	}
}

// active reports whether notices of other processes arrive.
func (n *notices) active() bool { return n.listening.Load() }

// announce tells other processes that a queue has changed, soon. It does not block.
func (n *notices) announce(ctx context.Context, qid int32) {
	if n.backend.options.PollOnly {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pending[qid] = struct{}{}
	if !n.sending && n.backend.ctx.Err() == nil {
		n.sending = true
		ctx = context.WithoutCancel(ctx)
		n.backend.start(func() { n.send(ctx) })
	}
}

// send sends notices until none is pending.
func (n *notices) send(ctx context.Context) {
	for {
		n.mu.Lock()
		var payload strings.Builder
		payload.WriteString(n.self)
		for qid := range n.pending {
			if payload.Len() > maxNoticeBytes {
				break
			}
			payload.WriteByte(' ')
			payload.WriteString(strconv.Itoa(int(qid)))
			delete(n.pending, qid)
		}
		if payload.Len() == len(n.self) {
			n.sending = false
			n.mu.Unlock()
			return
		}
		n.mu.Unlock()
		var none string
		// A notice that is lost costs seconds.
		_ = n.backend.attempt(ctx, request{sql: "SELECT pg_notify($1, $2)::text", args: []any{n.channel, payload.String()}}, one(&none))
		_ = backoff.Pause(n.backend.ctx, noticeInterval)
	}
}

// listen starts to listen for notices, from the first receive that waits.
func (n *notices) listen() {
	if !n.backend.options.PollOnly {
		n.listenNow.Do(func() { n.backend.start(n.run) })
	}
}

// run listens until the backend is closed.
func (n *notices) run() {
	ctx := n.backend.ctx
	for failures := 0; ctx.Err() == nil; {
		begun := time.Now()
		err := n.hear(ctx)
		n.listening.Store(false)
		if ctx.Err() != nil {
			return
		}
		if failures++; time.Since(begun) > time.Minute {
			failures = 1
		}
		n.backend.options.Logger.WarnContext(ctx, "notices do not arrive; receives that wait look again every second", "error", err)
		_ = backoff.Pause(ctx, backoff.AfterError(failures, nil))
	}
}

// hear listens on a connection of its own until that fails.
func (n *notices) hear(ctx context.Context) (err error) {
	conn, err := pgx.ConnectConfig(ctx, n.backend.pool.Config().ConnConfig.Copy())
	if err != nil {
		return err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		err = errors.Join(err, conn.Close(closing))
	}()
	if _, err := conn.Exec(ctx, "LISTEN "+pgx.Identifier{n.channel}.Sanitize(), pgx.QueryExecModeSimpleProtocol); err != nil {
		return err
	}
	n.listening.Store(true)
	n.backend.wakeAll() // notices may have been missed
	for {
		notice, err := conn.WaitForNotification(ctx)
		if err != nil {
			return err
		}
		sender, rest, _ := strings.Cut(notice.Payload, " ")
		if sender == n.self {
			continue
		}
		for text := range strings.FieldsSeq(rest) {
			if qid, err := strconv.ParseInt(text, 10, 32); err == nil {
				n.backend.noticed(int32(qid))
			}
		}
	}
}
