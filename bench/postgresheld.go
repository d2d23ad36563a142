package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/mailboxmq/mailbox/driver"
)

// The held run: messages a second, the time before the transaction begins, and the length of a window.
const (
	heldRate   = 800
	heldBefore = 40 * time.Second
	heldWindow = 10 * time.Second
)

// heldShape is that of the run: each consumer claims up to ten messages, and messages are sent one by one.
var heldShape = daemonShape{workers: 8, batch: 10, queues: 1, body: bodyBytes}

// heldVariants are further ways to run pgbox: with each twentieth message nacked, with strict groups, and with the bounds of a daemon's queues.
func heldVariants() []postgresPeer {
	bounds := driver.Config{
		MaxMessages: 1_000_000, MaxBytes: 1 << 30, MaxInFlight: 10_000, DedupWindow: time.Hour,
		RetainReady: driver.Retention{Age: 7 * 24 * time.Hour}, RetainDead: driver.Retention{Age: 14 * 24 * time.Hour},
	}
	return []postgresPeer{
		{"pgbox-nacks", pgboxClaims, 1, openPgbox(driver.Config{}, 20)},
		{"pgbox-strict", pgboxClaims, 1, openPgbox(driver.Config{StrictGroups: true}, 0)},
		{"pgbox-bounds", pgboxClaims, 1, openPgbox(bounds, 0)},
	}
}

// heldGroups is the number of groups of a producer.
const heldGroups = 8

// produceGroups adds a producer whose messages are in groups.
func (s *daemonStand) produceGroups(queue driver.Queue) {
	producer, sent := len(s.producers), 0
	s.producers = append(s.producers, func(bodies [][]byte) error {
		out := make([]driver.Outgoing, len(bodies))
		for i, body := range bodies {
			out[i] = driver.Outgoing{Body: body, Group: fmt.Sprint(producer, " ", sent%heldGroups)}
			sent++
		}
		_, err := queue.Send(context.Background(), out)
		return err
	})
}

// A nackingConsumer nacks one of so many messages when it gets it first.
type nackingConsumer struct {
	*pullConsumer
	every, seen int
}

func (c *nackingConsumer) receive() ([][]byte, error) {
	got, err := c.queues[0].Receive(context.Background(), driver.ReceiveRequest{Max: c.batch, Visibility: daemonVisibility, Wait: daemonWait})
	c.from, c.bodies, c.receipts = c.queues[0], c.bodies[:0], c.receipts[:0]
	var nacks []driver.Nack
	for _, d := range got {
		if c.seen++; c.seen%c.every == 0 && d.Deliveries == 1 {
			nacks = append(nacks, driver.Nack{Receipt: d.Receipt})
			continue
		}
		c.bodies, c.receipts = append(c.bodies, d.Body), append(c.receipts, d.Receipt)
	}
	if len(nacks) > 0 {
		err = errors.Join(err, c.from.Nack(context.Background(), nacks))
	}
	return c.bodies, err
}

// A heldSeries is how claims of one queue did before and while a transaction was held open.
type heldSeries struct {
	Name    string     `json:"name"`
	Windows []heldPart `json:"windows"`
}

// A heldPart is one window. Times are in microseconds.
type heldPart struct {
	// Seconds since the transaction began; negative before.
	At     float64 `json:"at_s"`
	Rate   float64 `json:"messages_per_second"`
	Claims int     `json:"claims"` // that returned messages
	// How long they took, answer included.
	ClaimP50 float64 `json:"claim_p50_us"`
	ClaimP99 float64 `json:"claim_p99_us"`
	ClaimMax float64 `json:"claim_max_us"`
	// From the send to the receipt.
	P50       float64 `json:"delivery_p50_us"`
	P99       float64 `json:"delivery_p99_us"`
	ServerCPU float64 `json:"server_cpu_us"` // a message
}

// A claimTracer measures the statements of a queue that claim messages, and return some.
type claimTracer struct {
	claims []string
	head   int64

	mu   sync.Mutex // guards took
	took []time.Duration
}

type claimStart struct{}

// TraceQueryStart notes when a claim begins.
func (c *claimTracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if !slices.ContainsFunc(c.claims, func(part string) bool { return strings.Contains(data.SQL, part) }) {
		return ctx
	}
	return context.WithValue(ctx, claimStart{}, time.Now())
}

// TraceQueryEnd notes how long a claim took.
func (c *claimTracer) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryEndData) {
	start, isClaim := ctx.Value(claimStart{}).(time.Time)
	if !isClaim || data.CommandTag.RowsAffected() <= c.head {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.took = append(c.took, time.Since(start))
}

// take returns what was measured since the last call, sorted.
func (c *claimTracer) take() []time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	took := c.took
	c.took = nil
	slices.Sort(took)
	return took
}

// hold runs one queue on a server of its own: for heldBefore, and then while another session has a transaction open.
func (r *report) hold(peer postgresPeer, version *string) (series heldSeries, err error) {
	server, err := startPostgres(r.dir)
	if err != nil {
		return series, err
	}
	tracer := &claimTracer{claims: peer.claims, head: peer.head}
	stand := &daemonStand{process: &daemonProcess{command: server.command, halt: server.close}, shape: heldShape}
	defer func() { err = errors.Join(err, stand.close()) }()
	if *version, err = server.version(); err != nil {
		return series, err
	}
	if err := peer.open(stand, server.url, tracer); err != nil {
		return series, err
	}
	window := min(heldWindow, r.held)
	if _, err := stand.steady(heldRate, window); err != nil { // to warm up
		return series, err
	}
	tracer.take()
	series.Name = peer.name
	fmt.Printf("%s, %d messages a second, one transaction held open for %v\n", peer.name, heldRate, r.held)
	table := tabwriter.NewWriter(os.Stdout, 8, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "s\tmessages/s\tclaims\tp50 µs\tp99 µs\tmax µs\tdelivery p50\tp99\tserver µs\t")
	measure := func(at time.Duration) error {
		pace, err := stand.steady(heldRate, window)
		took := tracer.take()
		if err != nil {
			return err
		}
		if len(took) == 0 {
			return errors.New("no statement was seen that claims messages")
		}
		part := heldPart{
			At: at.Seconds(), Rate: pace.Rate, Claims: len(took), ClaimP50: microseconds(percentile(took, 50)), ClaimP99: microseconds(percentile(took, 99)),
			ClaimMax: microseconds(took[len(took)-1]), P50: pace.P50, P99: pace.P99, ServerCPU: pace.ServerCPU,
		}
		series.Windows = append(series.Windows, part)
		fmt.Fprintf(table, "%.0f\t%.0f\t%d\t%.0f\t%.0f\t%.0f\t%.0f\t%.0f\t%.0f\t\n", part.At, part.Rate, part.Claims, part.ClaimP50, part.ClaimP99, part.ClaimMax, part.P50, part.P99, part.ServerCPU)
		return table.Flush()
	}
	before := min(heldBefore, r.held)
	for start := time.Now(); time.Since(start) < before; {
		if err := measure(time.Since(start) - before); err != nil {
			return series, err
		}
	}
	release, err := holdTransaction(server.url)
	if err != nil {
		return series, err
	}
	for start := time.Now(); time.Since(start) < r.held; {
		if err := measure(time.Since(start)); err != nil {
			return series, errors.Join(err, release())
		}
	}
	return series, release()
}

// holdTransaction opens a transaction in a session of its own, which keeps the server from removing rows.
func holdTransaction(url string) (release func() error, err error) {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, err
	}
	release = func() error { return conn.Close(ctx) }
	_, err = conn.Exec(ctx, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT pg_current_xact_id()", pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		return nil, errors.Join(err, release())
	}
	return release, nil
}
