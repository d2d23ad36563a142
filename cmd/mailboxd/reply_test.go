package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
	"github.com/mailboxmq/mailbox/remotebox"
	"github.com/mailboxmq/mailbox/reply"
)

// slotLife is how long a call may take, and how long a slot that a crash brings back is there.
const slotLife = 20 * time.Second

// TestKilledDaemonAnswersEachCallOnce has many callers and workers with nothing but a daemon on disk,
// which is killed twice, and workers whose connections are cut while they work. Each call is answered,
// fails or times out, no request is answered twice, and no slot is left.
func TestKilledDaemonAnswersEachCallOnce(t *testing.T) {
	volume.Repeats(t)
	calls := volume.Of(1_000)
	dir := t.TempDir()
	d := &replyDaemon{t: t, dir: dir}
	d.restart()
	d.child.must("/v1/queues/configure", `{"topic":"sums","config":{"max_attempts":0}}`)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	var workers sync.WaitGroup
	working, stop := context.WithCancel(ctx)
	for n := range 8 {
		workers.Go(func() { d.work(working, n) })
	}
	backend := d.client()
	box, err := mailbox.Open[int](ctx, backend, "sums", nil)
	if err != nil {
		t.Fatal(err)
	}
	client := reply.NewClient[int, string](box, backend.Replies(), &reply.Options[string]{TTL: slotLife})
	var answered, failed atomic.Int64
	var callers sync.WaitGroup
	for n := range calls {
		callers.Go(func() {
			answer, err := client.Call(ctx, n)
			switch {
			case err != nil:
				failed.Add(1)
			case !strings.HasPrefix(answer, fmt.Sprint(n, " by ")):
				t.Errorf("call %d was answered with %q", n, answer)
			default:
				answered.Add(1)
				d.expectAnswer(n, answer)
			}
		})
	}
	called := make(chan struct{})
	go func() { callers.Wait(); close(called) }()
	for restart := range 2 {
		for waiting := true; waiting && d.resolved.Load() < int64(calls*(restart+1)/4); {
			select {
			case <-called: // a slow machine: the others have timed out
				waiting = false
			case <-time.After(5 * time.Millisecond):
			}
		}
		d.restart()
	}
	<-called
	stop()
	workers.Wait()
	_ = box.Close()
	_ = backend.Close()
	if answered.Load() == 0 || answered.Load()+failed.Load() != int64(calls) {
		t.Errorf("%d of %d calls were answered, and %d failed", answered.Load(), calls, failed.Load())
	}
	t.Logf("%d calls were answered, %d failed or timed out", answered.Load(), failed.Load())
	d.expectNoSlots(ctx)
}

// replyDaemon is a daemon on disk that is killed, and what its workers have answered.
type replyDaemon struct {
	t        *testing.T
	dir      string
	child    *child
	address  atomic.Pointer[string]
	resolved atomic.Int64

	answers sync.Map // by request: the answer that a worker knows to be stored
}

// restart kills the daemon, if there is one, and starts it again.
func (d *replyDaemon) restart() {
	d.t.Helper()
	if d.child != nil {
		d.child.kill()
	}
	d.child = startChildWith(d.t, d.dir, nil, "--listen-oap=127.0.0.1:0")
	for {
		if _, rest, started := strings.Cut(d.child.log.String(), `"oap":"`); started {
			address, _, _ := strings.Cut(rest, `"`)
			d.address.Store(&address)
			return
		}
		<-time.After(time.Millisecond)
	}
}

// client returns a client of the daemon, whatever its address is.
func (d *replyDaemon) client() *remotebox.Backend {
	return remotebox.New([]string{"daemon"}, d.child.token, &remotebox.Options{Patience: slotLife, Dial: d.dial})
}

func (d *replyDaemon) dial(ctx context.Context, _ string) (net.Conn, error) {
	var dialer net.Dialer
	return dialer.DialContext(ctx, "tcp", *d.address.Load())
}

// work answers requests. Every so often the worker dies, at some point of its work, and another one
// takes its place.
func (d *replyDaemon) work(ctx context.Context, worker int) {
	for life := 0; ctx.Err() == nil; life++ {
		backend := d.client()
		box, err := mailbox.Open(ctx, backend, "sums", &mailbox.Options[int]{Replies: backend.Replies()})
		for served := 0; err == nil && served < 20+worker; served++ {
			var got []*mailbox.Message[int]
			if got, err = box.Receive(ctx, mailbox.WithWait(time.Second), mailbox.WithVisibility(2*time.Second), mailbox.WithMax(1)); err != nil {
				break
			}
			for _, m := range got {
				if served == 19+worker && life%2 == 0 {
					break // it dies before it answers
				}
				d.answer(ctx, m, fmt.Sprintf("%d by %d.%d", m.Body, worker, life))
			}
		}
		_ = backend.Close()
	}
}

func (d *replyDaemon) answer(ctx context.Context, m *mailbox.Message[int], answer string) {
	box, err := mailbox.ReplyMailbox[string](ctx, m, nil)
	if err != nil {
		return
	}
	if _, err := box.Send(ctx, answer); err == nil {
		d.resolved.Add(1)
		if first, known := d.answers.LoadOrStore(m.Body, answer); known {
			d.t.Errorf("request %d was answered with %v and with %s", m.Body, first, answer)
		}
		if m.Body%7 == 0 {
			return // it dies between the answer and the ack
		}
	} else if !errors.Is(err, mailbox.ErrReplyAlreadySent) && !errors.Is(err, mailbox.ErrReplyCancelled) && !errors.Is(err, mailbox.ErrReplyExpired) {
		return
	}
	_ = m.Ack(ctx) // otherwise it comes back, and is acked then
}

// expectAnswer checks that a caller got the answer that a worker knows to be stored.
func (d *replyDaemon) expectAnswer(request int, answer string) {
	if stored, known := d.answers.Load(request); known && stored != answer {
		d.t.Errorf("call %d was answered with %s, and %v was stored", request, answer, stored)
	}
}

// expectNoSlots waits until all slots are removed or expired: callers that failed may have left some.
func (d *replyDaemon) expectNoSlots(ctx context.Context) {
	d.t.Helper()
	for ; ; <-time.After(100 * time.Millisecond) {
		list := d.slots(ctx)
		if !strings.Contains(list, `"state":"pending"`) && !strings.Contains(list, `"state":"resolved"`) && !strings.Contains(list, `"state":"cancelled"`) {
			return
		}
		if ctx.Err() != nil {
			d.t.Fatalf("slots are left:\n%s", list)
		}
	}
}

// slots returns the list of slots.
func (d *replyDaemon) slots(ctx context.Context) string {
	d.t.Helper()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, d.child.base+"/v1/replies/list", strings.NewReader("{}"))
	if err != nil {
		d.t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+d.child.token)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		d.t.Fatal(err)
	}
	defer response.Body.Close()
	list, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		d.t.Fatalf("list slots: %s, %v", response.Status, err)
	}
	return string(list)
}
