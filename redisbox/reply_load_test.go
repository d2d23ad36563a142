package redisbox_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/internal/testing/redistest"
	"github.com/mailboxmq/mailbox/internal/testing/replytest"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
	"github.com/mailboxmq/mailbox/redisbox"
)

// TestEveryCallerGetsRedisAnswerErrorOrTimeout runs many callers and workers over one Redis
// server, which is killed and restarted now and then. Its clock is set ahead when slots
// have to expire.
func TestEveryCallerGetsRedisAnswerErrorOrTimeout(t *testing.T) {
	volume.Alone(t)
	t.Parallel()
	server := redistest.Standalone(t, redistest.AppendOnly(redistest.FsyncNo), redistest.ClockSkew(0))
	prefix, restarts := redistest.Prefix(t), 0
	backend := openBackend(t, server.ClientOption(), &redisbox.Options{Prefix: prefix})
	load := replytest.Load{
		Requests: backend, Replies: backend.Replies(0),
		Slots:   func(ctx context.Context) (int, error) { return countSlots(ctx, server, prefix) },
		Callers: 1000, Workers: 8,
		Work: 10 * time.Millisecond, Visibility: time.Second, Patience: 3 * time.Minute,
		Trouble: func(ctx context.Context) {
			for restarts < 3 && ctx.Err() == nil {
				rest(ctx, 500*time.Millisecond) // the workers run for more than a second in all
				server.Kill()
				if err := server.Restart(context.WithoutCancel(ctx)); err != nil {
					t.Error(err)
					return
				}
				restarts++
			}
		},
		Elapse: func(_ context.Context, d time.Duration) {
			if err := server.SetClockSkew(d); err != nil {
				t.Error(err)
			}
		},
	}
	t.Logf("%d callers: %v; %d restarts", load.Callers, load.Run(t), restarts)
	if restarts == 0 {
		t.Error("the server was not restarted: the test shows nothing")
	}
}

// countSlots counts the slots of all buckets.
func countSlots(ctx context.Context, server *redistest.Server, prefix string) (total int, err error) {
	keys, err := server.Do(ctx, "KEYS", prefix+"*}:slots")
	if err != nil {
		return 0, err
	}
	for _, key := range keys.([]any) {
		n, err := server.Do(ctx, "HLEN", fmt.Sprint(key))
		if err != nil {
			return 0, err
		}
		total += int(n.(int64))
	}
	return total, nil
}
