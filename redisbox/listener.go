package redisbox

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
)

// A listener hears what scripts announce on one channel, through all losses of the
// connection.
type listener struct {
	backend *Backend
	channel string
	// hear is called for each announcement, one after the other. It must not block.
	hear func(ctx context.Context, message string)
	// missed is called each time the server has confirmed that it will tell: what
	// was announced before may have been missed. It must not block.
	missed func()

	listens   atomic.Bool   // the server has confirmed, and the connection stands
	confirmed chan struct{} // closed when it has confirmed for the first time
	confirm   sync.Once
}

func newListener(b *Backend, channel string, hear func(ctx context.Context, message string), missed func()) *listener {
	return &listener{backend: b, channel: channel, hear: hear, missed: missed, confirmed: make(chan struct{})}
}

// run listens until ctx ends.
func (l *listener) run(ctx context.Context) {
	client := l.backend.client
	listening := l.hooked(ctx)
	pause := firstPause
	for ctx.Err() == nil {
		started := time.Now()
		err := client.Receive(listening, client.B().Ssubscribe().Channel(l.channel).Build(), func(msg rueidis.PubSubMessage) {
			l.hear(ctx, msg.Message)
		})
		l.listens.Store(false)
		if ctx.Err() != nil {
			return
		}
		if time.Since(started) > time.Second {
			pause = firstPause
		}
		if pause >= longPause {
			l.backend.options.Logger.WarnContext(ctx, "cannot listen for announcements; who waits looks every second",
				"channel", l.channel, "error", err)
		}
		sleep(ctx, pause)
		pause = min(2*pause, lookEvery)
	}
}

// hooked returns a context that tells the client what to do when subscriptions
// begin and end.
func (l *listener) hooked(ctx context.Context) context.Context {
	hooked := rueidis.WithOnSubscriptionHook(ctx, func(s rueidis.PubSubSubscription) {
		if s.Kind != "ssubscribe" {
			l.listens.Store(false)
			return
		}
		l.listens.Store(true)
		l.confirm.Do(func() { close(l.confirmed) })
		l.missed()
	})
	return rueidis.WithOnReceiveReturnHook(hooked, func(err error, client rueidis.CommandClient) error {
		if ctx.Err() != nil { // the connection is shared and lives on
			farewell, cancel := context.WithTimeout(context.WithoutCancel(ctx), longPause)
			defer cancel()
			if client.Do(farewell, client.B().Ping().Build()).Error() != nil {
				return err // the client panics if a server that is busy refuses what follows
			}
			_ = client.Do(farewell, client.B().Sunsubscribe().Channel(l.channel).Build()).Error()
		}
		return err
	})
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
