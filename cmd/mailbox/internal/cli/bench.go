package cli

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/mailboxmq/mailbox/driver"
)

// benchFlags are the flags of mailbox bench.
type benchFlags struct {
	producers, consumers, batch int
	size                        byteSize
	duration                    time.Duration
	rate                        int
	overHTTP                    bool
}

func (s *shell) benchCommand() *cobra.Command {
	f := benchFlags{size: 256}
	c := &cobra.Command{
		Use: "bench", Short: "Measure how fast a daemon is",
		Long: "Measure how fast a daemon is: producers send, consumers receive and ack, all concurrently and each confirmed, on a\n" +
			"queue of their own that is removed at the end. Latency is from the beginning of a send until the message was\n" +
			"received. Measure it with --rate: without, messages wait for consumers, and that time is printed.",
		Example: "mailbox bench\nmailbox bench --rate 500 --duration 30s\nmailbox bench --http --batch 10 --json",
		Args:    wants(0, 0),
		RunE:    s.run(func(ctx context.Context, _ []string) error { return s.bench(ctx, &f) }),
	}
	flags := c.Flags()
	flags.IntVar(&f.producers, "producers", 8, "how many send")
	flags.IntVar(&f.consumers, "consumers", 8, "how many receive and ack")
	flags.IntVar(&f.batch, "batch", 1, "messages of a send, and at most of a receive")
	flags.Var(&f.size, "size", "bytes of a body")
	flags.DurationVar(&f.duration, "duration", 5*time.Second, "how long")
	flags.IntVar(&f.rate, "rate", 0, "messages per second that are sent; 0 means as many as possible")
	flags.BoolVar(&f.overHTTP, "http", false, "over HTTP instead of OAP/1")
	return c
}

func (f *benchFlags) check() error {
	switch {
	case f.producers < 1 || f.consumers < 1 || f.producers > 1024 || f.consumers > 1024:
		return usageError("--producers %d and --consumers %d: want 1 to 1024 of each", f.producers, f.consumers)
	case f.batch < 1 || f.batch > driver.DefaultMaxBatch:
		return usageError("--batch: invalid value %d; want 1 to %d", f.batch, driver.DefaultMaxBatch)
	case f.size < stampBytes || f.size > maxBodyBytes:
		return usageError("--size: invalid value %d; want %d to %d bytes", f.size, stampBytes, maxBodyBytes)
	case f.duration <= 0 || f.rate < 0:
		return usageError("--duration %v and --rate %d: want a duration above 0, and a rate of at least 0", f.duration, f.rate)
	}
	return nil
}

// benchView is a result in JSON.
type benchView struct {
	Surface    string `json:"surface"`
	Producers  int    `json:"producers"`
	Consumers  int    `json:"consumers"`
	Batch      int    `json:"batch"`
	Size       int    `json:"size"`
	DurationMS int64  `json:"duration_ms"`
	// Rate is that of --rate; with 0 the latencies are mostly time in the queue.
	Rate        int     `json:"rate"`
	Sent        int64   `json:"sent"`
	Acked       int64   `json:"acked"`
	SentPerSec  float64 `json:"sent_per_s"`
	AckedPerSec float64 `json:"acked_per_s"`
	P50MS       float64 `json:"latency_p50_ms"`
	P99MS       float64 `json:"latency_p99_ms"`
	MaxMS       float64 `json:"latency_max_ms"`
}

func (s *shell) bench(ctx context.Context, f *benchFlags) error {
	if err := f.check(); err != nil {
		return err
	}
	connection, err := s.connect()
	if err != nil {
		return err
	}
	if f.overHTTP {
		connection.oap = ""
	}
	m := connection.queueOpener()
	defer m.close()
	var random [6]byte
	_, _ = rand.Read(random[:]) // never fails, see crypto/rand
	b := &benchmark{flags: f, name: "mailbox-bench-" + hex.EncodeToString(random[:]), bar: s.progress("measuring", f.duration.Milliseconds())}
	if err := connection.api.call(ctx, apiRequest{path: "/v1/send/batch", body: emptyBatch{b.name, []struct{}{}}, creates: true}, nil); err != nil {
		return err
	}
	queue, err := m.open(ctx, b.name)
	if err != nil {
		return err
	}
	b.queue = queue
	elapsed, err := b.run(ctx)
	b.bar.end()
	cleaning, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTime)
	defer cancel()
	cleaned := connection.api.call(cleaning, apiRequest{path: "/v1/queues/delete", body: queueBody{b.name}}, nil)
	if errors.Is(cleaned, driver.ErrNotFound) { // no send arrived
		cleaned = nil
	}
	if err = errors.Join(err, cleaned); err != nil {
		return err
	}
	v := b.view(elapsed)
	v.Surface = "oap"
	if m.backend == nil {
		v.Surface = "http"
	}
	// Without a rate the queue fills as fast as possible, and this is not how long a
	// message takes through an idle daemon.
	delay := "time in the queue p50 %.2f ms, p99 %.2f ms, longest %.2f ms (senders are not held back, so messages wait for consumers: measure latency with --rate)"
	if f.rate > 0 {
		delay = "latency p50 %.2f ms, p99 %.2f ms, longest %.2f ms"
	}
	return s.say(v, "%s: %d producers, %d consumers, %d bytes, batches of %d, %v\n"+
		"sent %.0f/s, received and acked %.0f/s\n"+delay,
		v.Surface, v.Producers, v.Consumers, v.Size, v.Batch, elapsed.Round(time.Millisecond), v.SentPerSec, v.AckedPerSec, v.P50MS, v.P99MS, v.MaxMS)
}

// A benchmark is one run of mailbox bench.
type benchmark struct {
	flags *benchFlags
	name  string
	queue messageQueue
	bar   *progress
	began time.Time
	sent  atomic.Int64
	acked atomic.Int64

	mu        sync.Mutex // guards the fields below
	latencies []time.Duration
}

// stampBytes is the size of the send time in a body.
const stampBytes = 8

// run produces for the given duration, consumes meanwhile, and returns how long
// it took.
func (b *benchmark) run(ctx context.Context) (time.Duration, error) {
	b.began = time.Now()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	producing, stop := context.WithTimeout(ctx, b.flags.duration)
	defer stop()
	var work sync.WaitGroup
	each := func(n int, ctx context.Context, do func(context.Context) error) {
		for range n {
			work.Go(func() {
				if err := do(ctx); err != nil {
					cancel(err)
				}
			})
		}
	}
	each(b.flags.producers, producing, b.produce)
	each(b.flags.consumers, producing, b.consume)
	work.Go(func() { b.show(producing) })
	work.Wait()
	return time.Since(b.began), context.Cause(ctx)
}

// show updates the progress bar.
func (b *benchmark) show(ctx context.Context) {
	ticker := time.NewTicker(progressEvery)
	defer ticker.Stop()
	for last := b.began; ; {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			b.bar.add(now.Sub(last).Milliseconds())
			last = now
		}
	}
}

func (b *benchmark) produce(ctx context.Context) error {
	var pace <-chan time.Time
	if b.flags.rate > 0 {
		ticker := time.NewTicker(max(time.Duration(b.flags.producers*b.flags.batch)*time.Second/time.Duration(b.flags.rate), time.Microsecond))
		defer ticker.Stop()
		pace = ticker.C
	}
	messages := make([]driver.Outgoing, b.flags.batch)
	for i := range messages {
		messages[i].Body = make([]byte, b.flags.size)
	}
	for {
		if pace != nil {
			select {
			case <-ctx.Done():
				return nil
			case <-pace:
			}
		}
		for i := range messages {
			binary.BigEndian.PutUint64(messages[i].Body, uint64(time.Since(b.began)))
		}
		if ctx.Err() != nil {
			return nil
		}
		if err := answered(ctx, func(ctx context.Context) error {
			_, err := b.queue.Send(ctx, messages)
			return err
		}); err != nil {
			return err
		}
		b.sent.Add(int64(len(messages)))
	}
}

// answered calls do and waits for its answer even if ctx ends: a call that was
// cut off and is still running could create the queue again after it was deleted.
func answered(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTime)
	defer cancel()
	return do(ctx)
}

// benchWait is how long a receive of a consumer waits.
const benchWait = 100 * time.Millisecond

func (b *benchmark) consume(ctx context.Context) error {
	var latencies []time.Duration
	defer func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.latencies = append(b.latencies, latencies...)
	}()
	for {
		if ctx.Err() != nil {
			return nil
		}
		var got []driver.Delivery
		if err := answered(ctx, func(ctx context.Context) (err error) {
			got, err = b.queue.Receive(ctx, driver.ReceiveRequest{Max: b.flags.batch, Visibility: time.Minute, Wait: benchWait})
			return err
		}); err != nil {
			return err
		}
		if len(got) == 0 {
			continue
		}
		now := time.Since(b.began)
		receipts := make([]driver.Receipt, len(got))
		for i := range got {
			receipts[i] = got[i].Receipt
			if len(got[i].Body) >= stampBytes {
				latencies = append(latencies, now-time.Duration(binary.BigEndian.Uint64(got[i].Body)))
			}
		}
		if err := answered(ctx, func(ctx context.Context) error { return b.queue.Ack(ctx, receipts) }); err != nil {
			return err
		}
		b.acked.Add(int64(len(receipts)))
	}
}

func (b *benchmark) view(elapsed time.Duration) benchView {
	slices.Sort(b.latencies)
	at := func(part float64) float64 {
		if len(b.latencies) == 0 {
			return 0
		}
		d := b.latencies[int(part*float64(len(b.latencies)-1))]
		return float64(d.Microseconds()) / 1000
	}
	return benchView{
		Producers: b.flags.producers, Consumers: b.flags.consumers, Batch: b.flags.batch, Size: int(b.flags.size),
		Rate: b.flags.rate, DurationMS: elapsed.Milliseconds(), Sent: b.sent.Load(), Acked: b.acked.Load(),
		SentPerSec: float64(b.sent.Load()) / elapsed.Seconds(), AckedPerSec: float64(b.acked.Load()) / elapsed.Seconds(),
		P50MS: at(0.50), P99MS: at(0.99), MaxMS: at(1),
	}
}

// emptyBatch is a send without messages, which creates the queue.
type emptyBatch struct {
	Queue    string     `json:"topic"`
	Messages []struct{} `json:"messages"`
}
