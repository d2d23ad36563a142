package shard

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/mailboxmq/mailbox/internal/backoff"
)

// FallbackInterval is how long a lost announcement can stay unnoticed. The known
// ways to lose one, a cut connection and a failover, are noticed at once.
const FallbackInterval = 30 * time.Second

// A Subscription receives the announcements that scripts publish on one channel. It
// subscribes again whenever the connection is lost.
type Subscription struct {
	server  *Server
	channel string
	// onMessage is called for each announcement, one after the other. It must not block.
	onMessage func(ctx context.Context, message string)
	// onSubscribed is called each time the server has confirmed the subscription:
	// earlier announcements may have been missed. It must not block.
	onSubscribed func()

	Active    atomic.Bool   // the server has confirmed, and the connection stands
	Confirmed chan struct{} // closed by the first confirmation
	confirm   sync.Once
}

// NewSubscription returns a subscription that Run starts.
func NewSubscription(server *Server, channel string, onMessage func(ctx context.Context, message string), onSubscribed func()) *Subscription {
	return &Subscription{server: server, channel: channel, onMessage: onMessage, onSubscribed: onSubscribed, Confirmed: make(chan struct{})}
}

// Run receives announcements until ctx ends.
func (s *Subscription) Run(ctx context.Context) {
	client := s.server.Client
	hooked := s.hooked(ctx)
	pause := firstPause
	for ctx.Err() == nil {
		started := time.Now()
		err := client.Receive(hooked, client.B().Ssubscribe().Channel(s.channel).Build(), func(msg rueidis.PubSubMessage) {
			s.onMessage(ctx, msg.Message)
		})
		s.Active.Store(false)
		if ctx.Err() != nil {
			return
		}
		if time.Since(started) > time.Second {
			pause = firstPause
		}
		if pause >= LongPause {
			s.server.Logger.WarnContext(ctx, "cannot subscribe to announcements; waiting receivers poll every second",
				"channel", s.channel, "error", err)
		}
		_ = backoff.Pause(ctx, pause)
		pause = min(2*pause, FallbackInterval)
	}
}

// hooked returns a context that tells the client what to do when subscriptions
// begin and end.
func (s *Subscription) hooked(ctx context.Context) context.Context {
	hooked := rueidis.WithOnSubscriptionHook(ctx, func(event rueidis.PubSubSubscription) {
		if event.Kind != "ssubscribe" {
			s.Active.Store(false)
			return
		}
		s.Active.Store(true)
		s.confirm.Do(func() { close(s.Confirmed) })
		s.onSubscribed()
	})
	return rueidis.WithOnReceiveReturnHook(hooked, func(err error, client rueidis.CommandClient) error {
		if ctx.Err() != nil { // the connection is shared and stays open
			unsubscribe, cancel := context.WithTimeout(context.WithoutCancel(ctx), LongPause)
			defer cancel()
			if client.Do(unsubscribe, client.B().Ping().Build()).Error() != nil {
				return err // the client panics if a busy server refuses SUNSUBSCRIBE
			}
			_ = client.Do(unsubscribe, client.B().Sunsubscribe().Channel(s.channel).Build()).Error()
		}
		return err
	})
}
