package diskbox

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/history"
)

// runLoad sends, receives and settles until it is killed, and prints every call.
func runLoad(dir string) error {
	seed, err := strconv.ParseUint(os.Getenv(seedVariable), 10, 64)
	if err != nil {
		return err
	}
	start := time.Now()
	b, err := Open(context.Background(), dir, &Options{small: true})
	if err != nil {
		return err
	}
	var mu sync.Mutex
	tell := func(line killLine) {
		text, _ := json.Marshal(line)
		mu.Lock()
		defer mu.Unlock()
		_, _ = os.Stdout.Write(append(text, '\n')) // one system call: no printed line is lost when the process is killed
	}
	tell(killLine{Opened: time.Since(start)})
	failures := make(chan error)
	var calls atomic.Uint64
	for name, config := range killQueues {
		if err := b.ConfigureQueue(context.Background(), name, config.Effective()); err != nil {
			return err
		}
		q, err := b.OpenQueue(context.Background(), name)
		if err != nil {
			return err
		}
		r := &reporter{Queue: q, queue: name, process: fmt.Sprintf("process %d", seed), start: start, calls: &calls, tell: tell}
		if config.GroupLimits != "" {
			go func() { failures <- throttleGroups(q, rand.New(rand.NewPCG(seed, 200))) }()
		}
		if err := r.found(context.Background()); err != nil {
			return err
		}
		go func() { failures <- r.pause(rand.New(rand.NewPCG(seed, 300))) }()
		go func() { failures <- r.fire() }()
		if !config.StrictGroups { // they have no unique keys
			go func() { failures <- r.debounce(seed, rand.New(rand.NewPCG(seed, 400))) }()
		}
		for n := range uint64(3) {
			go func() { failures <- r.produce(seed, n) }()
			go func() { failures <- r.consume(rand.New(rand.NewPCG(seed, 100+n))) }()
		}
	}
	return <-failures
}

// produce sends batches, and now and then repeats a send of this process or of the one before
// it.
func (r *reporter) produce(seed, producer uint64) error {
	rng := rand.New(rand.NewPCG(seed, producer))
	message := func(process, number uint64) driver.Outgoing {
		name := fmt.Sprintf("%d-%d-%d", process, producer, number)
		out := driver.Outgoing{Body: []byte(name + strings.Repeat(" ", int(number*37%500))), Group: fmt.Sprint(number % 5)}
		if number%3 == 0 {
			out.UniqueKey = name // each message has another one
		}
		if number%2 == 0 {
			out.DedupKey = name
		}
		if number%16 == 0 {
			out.Delay = 50 * time.Millisecond
		}
		switch number % 16 { // these have no dedup key, and are not repeated
		case 5:
			out.DeliverAt = time.Now().Add(50 * time.Millisecond)
		case 7:
			out.TTL = 150 * time.Millisecond
		}
		if killQueues[r.queue].PriorityAging != 0 {
			out.Priority = int(number % (driver.MaxPriority + 1))
		}
		return out
	}
	for number := uint64(0); ; {
		var batch []driver.Outgoing
		for range 1 + rng.IntN(4) {
			switch repeat := 2 * rng.Uint64N(number/2+10); {
			case rng.IntN(10) > 0 || repeat > number:
				batch = append(batch, message(seed, number))
				number++
			case rng.IntN(2) == 0:
				batch = append(batch, message(seed, repeat))
			default:
				batch = append(batch, message(seed-1, repeat))
			}
		}
		sent, err := r.Send(context.Background(), batch)
		if err != nil {
			return err
		}
		if last := batch[len(batch)-1]; rng.IntN(8) == 0 && last.Delay == 0 && last.DeliverAt.IsZero() {
			if err := r.edit(rng, sent[len(batch)-1].ID); err != nil {
				return err
			}
		}
	}
}

// consume receives, and mostly acks.
func (r *reporter) consume(rng *rand.Rand) error {
	ctx := context.Background()
	for {
		got, err := r.Receive(ctx, driver.ReceiveRequest{
			Max: 1 + rng.IntN(8), Visibility: time.Duration(200+rng.IntN(600)) * time.Millisecond, Wait: 50 * time.Millisecond,
		})
		if err != nil {
			return err
		}
		for _, d := range got {
			switch rng.IntN(16) {
			case 0:
				delay := time.Duration(rng.IntN(100)) * time.Millisecond
				err = r.settle(history.OpNack, d, delay, func() error {
					return r.Nack(ctx, []driver.Nack{{Receipt: d.Receipt, Delay: delay, Cause: "not now"}})
				})
			case 1:
				err = r.settle(history.OpExtend, d, time.Second, func() error {
					_, err := r.Extend(ctx, []driver.Extension{{Receipt: d.Receipt, Visibility: time.Second}})
					return err
				})
			case 2:
				err = r.settle(history.OpDeadLetter, d, 0, func() error {
					return r.Queue.DeadLetter(ctx, []driver.DeadLetterRequest{{Receipt: d.Receipt, Reason: driver.ReasonFatal}})
				})
			case 3: // not settled
			case 4, 5:
				nack := driver.Nack{Receipt: d.Receipt, Mode: driver.NackRelease, Delay: time.Duration(rng.IntN(2)*20) * time.Millisecond}
				if rng.IntN(2) == 0 {
					nack.Mode = driver.NackPutBack
				}
				err = r.settle(history.OpNack, d, nack.Delay, func() error { return r.Nack(ctx, []driver.Nack{nack}) })
			default:
				err = r.settle(history.OpAck, d, 0, func() error { return r.Ack(ctx, []driver.Receipt{d.Receipt}) })
			}
			if err != nil {
				return err
			}
		}
	}
}

// throttleGroups throttles groups for a short time, or ends that, until it fails.
func throttleGroups(q driver.Queue, rng *rand.Rand) error {
	for {
		if err := q.Throttle(context.Background(), fmt.Sprint(rng.IntN(5)), time.Duration(rng.IntN(3)*10)*time.Millisecond); err != nil {
			return err
		}
	}
}
