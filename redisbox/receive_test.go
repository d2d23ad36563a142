package redisbox

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/redistest"
	"github.com/mailboxmq/mailbox/redisbox/internal/shard"
)

// A receiver that dies between any two bytes, of its request or of the answer, loses
// nothing: its messages are still there, in order, at once or when their lease is over.
// Each run tries some of about two thousand points.
func TestReceiverMayDieAnywhere(t *testing.T) {
	t.Parallel()
	server := redistest.SharedServer(t)
	proxy := redistest.NewProxy(t, server.Addr())
	var mu sync.Mutex
	deaths := make(map[string]redistest.Action) // by queue, of the next receive
	died := 0
	proxy.OnRequest(func(args []string) redistest.Action {
		if len(args) < 4 || args[1] != shard.BatchFullScript.Sha {
			return redistest.Pass
		}
		mu.Lock()
		defer mu.Unlock()
		action, there := deaths[args[3]]
		if !there {
			return redistest.Pass
		}
		delete(deaths, args[3])
		died++
		return action
	})

	b := open(t, connect(t, server.ClientOption()), &Options{Prefix: redistest.Prefix(t)})
	q := openQueue(t, b)
	send(t, q, "the scripts are loaded")
	receive(t, q, 1, hold)

	const requestBytes, answerBytes, step = 1500, 600, 12
	places := make(chan redistest.Action)
	go func() {
		defer close(places)
		for n := rand.IntN(step); n < requestBytes; n += step {
			places <- redistest.CutRequestAt(n)
		}
		for n := rand.IntN(step / 3); n < answerBytes; n += step / 3 {
			places <- redistest.CutAnswerAt(n)
		}
	}()
	var workers sync.WaitGroup
	for w := range 8 {
		workers.Go(func() {
			n := 0
			for place := range places {
				n++
				name := fmt.Sprintf("queue-%d-%d", w, n)
				mu.Lock()
				deaths[shard.Keys(b.server.Prefix, name, 0)[0]] = place
				mu.Unlock()
				dieAndLook(t, b, through(server, proxy), name, place)
			}
		})
	}
	workers.Wait()
	// On a busy machine some give up before the request is sent.
	if want := (requestBytes/step + answerBytes/(step/3)) * 9 / 10; died < want {
		t.Errorf("%d receivers died, want %d at least", died, want)
	}
}

// dieAndLook lets a receiver die and another receive its messages.
func dieAndLook(t *testing.T, b *Backend, option rueidis.ClientOption, name string, place redistest.Action) {
	opened, err := b.OpenQueue(t.Context(), name)
	if err != nil {
		t.Error(err)
		return
	}
	defer opened.Close()
	if _, err := opened.Send(t.Context(), []driver.Outgoing{{Body: []byte("a")}, {Body: []byte("b")}, {Body: []byte("c")}}); err != nil {
		t.Error(err)
		return
	}
	if err := die(t, option, b.server.Prefix, name); err != nil {
		t.Errorf("%v: %v", place, err)
	}
	var bodies []string
	for len(bodies) < 3 {
		got, err := opened.Receive(t.Context(), driver.ReceiveRequest{Max: 3, Visibility: hold, Wait: 10 * time.Second})
		if err != nil || len(got) == 0 {
			t.Errorf("%v: after %q got %d, error %v", place, bodies, len(got), err)
			return
		}
		for _, d := range got {
			bodies = append(bodies, string(d.Body))
		}
	}
	if order := strings.Join(bodies, ""); order != "abc" {
		t.Errorf("%v: got %s", place, order)
	}
}

// die receives with a client of its own, which is cut off and does not try again. An
// answer that arrived before the cut does no harm.
func die(t *testing.T, option rueidis.ClientOption, prefix, name string) error {
	option.DisableRetry = true
	client, err := rueidis.NewClient(option)
	if err != nil {
		return err
	}
	defer client.Close()
	b, err := Open(t.Context(), client, &Options{Prefix: prefix})
	if err != nil {
		return err
	}
	defer b.Close()
	q, err := b.OpenQueue(t.Context(), name)
	if err != nil {
		return err
	}
	defer q.Close()
	b.server.RetryFor = time.Millisecond
	_, _ = q.Receive(t.Context(), driver.ReceiveRequest{Max: 3, Visibility: 100 * time.Millisecond})
	return nil
}
