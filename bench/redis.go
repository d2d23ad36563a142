package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"
)

const (
	redisWorkers = 8 // producers, and as many consumers
	redisBatch   = 100
	// redisBacklog bounds the messages that wait or are under way: enough to keep all
	// workers busy.
	redisBacklog = 10_000
	// redisPatience is how long a load may take to start. asynq sleeps for a second when
	// it finds nothing.
	redisPatience = 10 * time.Second
)

// redisSuite compares queues in one and the same Redis server: bare commands,
// another library, and ours. The server's settings decide how much is on disk when a
// call returns, so there are three servers, one after the other.
func redisSuite(r *report) {
	parts := []struct {
		name string
		run  func() error
	}{{"rates", r.redisRaces}, {"wake-ups", r.wakeups}, {"calls", r.redisCalls}}
	for _, part := range parts {
		if !r.runs(part.name) {
			continue
		}
		if err := part.run(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

func (r *report) redisRaces() error {
	for _, files := range []struct {
		title    string
		settings []string
	}{
		{"no file", []string{"appendonly", "no"}},
		{"file synced every second", []string{"appendonly", "yes", "appendfsync", "everysec"}},
		{"file synced always", []string{"appendonly", "yes", "appendfsync", "always"}},
	} {
		if err := r.redisRace(files.title, files.settings); err != nil {
			return err
		}
	}
	return nil
}

// redisLoad is a way to have a queue in Redis.
type redisLoad struct {
	name string
	// atLeast is the target as a multiple of the yardstick's rate; 0 for none. The
	// yardstick is the first load.
	atLeast float64
	// rival is the load that must be so many times slower.
	rival   string
	beatsBy float64
	open    func(addr string) (*redisQueue, error)
}

// redisQueue is a queue in Redis, as producers and consumers see it.
type redisQueue struct {
	// newProducer returns the operation that one producer repeats: sending batch
	// messages, 1 by default.
	newProducer func() func() error
	batch       int
	// newConsumer returns the operation that one consumer repeats: receiving messages,
	// if there are any, and confirming them. It returns how many.
	newConsumer func() func() (int, error)
	// consume, where there is no newConsumer, starts to consume messages and calls done
	// for each.
	consume func(done func()) error
	close   func() error
}

// A redisPace is the rate of a load and the cost of a message.
type redisPace struct {
	rate            float64
	commands, reads float64
	processor       float64 // microseconds of this process
}

func redisLoads() []redisLoad {
	return []redisLoad{
		{name: "list", open: openList(false)},
		{name: "list, pipelined", open: openList(true)},
		{name: "stream", open: openStream},
		{name: "asynq", open: openAsynq},
		{name: "redisbox", atLeast: 1, rival: "asynq", beatsBy: 3, open: openRedisbox(1)},
		{
			name: fmt.Sprintf("redisbox, batches of %d", redisBatch), atLeast: 3, rival: "asynq", beatsBy: 3,
			open: openRedisbox(redisBatch),
		},
	}
}

// redisRace runs all loads in turns on one server, and prints what came of it.
func (r *report) redisRace(title string, settings []string) (err error) {
	server, err := startRedis(r.dir, settings...)
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, server.close()) }()
	loads := redisLoads()
	paces := make([][]redisPace, len(loads))
	for range r.rounds {
		for i, load := range loads {
			pace, err := r.redisTurn(server, load)
			if err != nil {
				return fmt.Errorf("%s: %w", load.name, err)
			}
			paces[i] = append(paces[i], pace)
		}
	}
	showRedis(title, loads, paces)
	return nil
}

func (r *report) redisTurn(server *redisServer, load redisLoad) (pace redisPace, err error) {
	if err := server.flush(); err != nil {
		return pace, err
	}
	queue, err := load.open(server.addr)
	if err != nil {
		return pace, err
	}
	defer func() { err = errors.Join(err, queue.close()) }()
	return (&redisMeasurement{queue: queue, server: server, during: 3 * r.each}).run()
}

// A redisMeasurement runs producers and consumers, and measures from the first confirmed
// message until the time is up.
type redisMeasurement struct {
	queue  *redisQueue
	server *redisServer
	during time.Duration

	waiting  chan struct{} // has an element for each message that waits, more or less
	produced atomic.Int64
	consumed atomic.Int64
	stopping chan struct{} // closed when producers must stop
	stopOnce sync.Once
	stopped  atomic.Bool // they have

	mu  sync.Mutex // guards err
	err error
}

func (m *redisMeasurement) run() (redisPace, error) {
	m.waiting, m.stopping = make(chan struct{}, redisBacklog), make(chan struct{})
	if m.queue.consume != nil {
		if err := m.queue.consume(func() { m.done(1) }); err != nil {
			return redisPace{}, err
		}
	}
	var producers, consumers sync.WaitGroup
	for range redisWorkers {
		send := m.queue.newProducer()
		producers.Go(func() { m.produce(send, max(m.queue.batch, 1)) })
		if m.queue.newConsumer != nil {
			take := m.queue.newConsumer()
			consumers.Go(func() { m.consume(take) })
		}
	}
	pace, err := m.measure()
	m.stop()
	producers.Wait()
	m.stopped.Store(true)
	consumers.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	return pace, errors.Join(err, m.err)
}

func (m *redisMeasurement) fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.err = cmp.Or(m.err, err)
	m.stop()
}

func (m *redisMeasurement) stop() { m.stopOnce.Do(func() { close(m.stopping) }) }

// done counts consumed messages.
func (m *redisMeasurement) done(n int) {
	m.consumed.Add(int64(n))
	for range n {
		<-m.waiting
	}
}

func (m *redisMeasurement) produce(send func() error, batch int) {
	for {
		for range batch {
			select {
			case m.waiting <- struct{}{}:
			case <-m.stopping:
				return
			}
		}
		m.produced.Add(int64(batch))
		if err := send(); err != nil {
			m.fail(err)
			return
		}
	}
}

func (m *redisMeasurement) consume(take func() (int, error)) {
	for !m.stopped.Load() || m.consumed.Load() < m.produced.Load() {
		n, err := take()
		if err != nil {
			m.fail(err)
			return
		}
		m.done(n)
	}
}

// measure measures the middle of the work.
func (m *redisMeasurement) measure() (redisPace, error) {
	for start := time.Now(); m.consumed.Load() == 0; time.Sleep(time.Millisecond) {
		if time.Since(start) > redisPatience {
			return redisPace{}, errors.New("no message was consumed")
		}
	}
	time.Sleep(m.during / 4) // to warm up
	before, err := m.server.traffic()
	if err != nil {
		return redisPace{}, err
	}
	busy, done, start := processorTime(), m.consumed.Load(), time.Now()
	time.Sleep(m.during)
	elapsed, messages := time.Since(start), float64(m.consumed.Load()-done)
	busy = processorTime() - busy
	after, err := m.server.traffic()
	if messages == 0 {
		return redisPace{}, errors.Join(err, errors.New("no message was consumed in time"))
	}
	return redisPace{
		rate:      messages / elapsed.Seconds(),
		commands:  float64(after.commands-before.commands) / messages,
		reads:     float64(after.reads-before.reads) / messages,
		processor: float64(busy.Nanoseconds()) / 1e3 / messages,
	}, err
}

func showRedis(title string, loads []redisLoad, paces [][]redisPace) {
	fmt.Printf("\n%s: messages of %d bytes, %d producers, %d consumers\n", title, bodyBytes, redisWorkers, redisWorkers)
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "  \tmessages/s\tcommands\tround trips\tCPU µs\tof "+loads[0].name+"\tpromise")
	for i, l := range loads {
		share := redisShare(paces[i], paces[0])
		var promises []string
		if l.atLeast > 0 {
			promises = append(promises, fmt.Sprintf("at least %.0f× of it: %s", l.atLeast, kept(share >= l.atLeast)))
		}
		if rival := slices.IndexFunc(loads, func(r redisLoad) bool { return r.name == l.rival }); rival >= 0 {
			faster := redisShare(paces[i], paces[rival])
			promises = append(promises, fmt.Sprintf("%.1f× %s, promised %.0f×: %s", faster, l.rival, l.beatsBy, kept(faster >= l.beatsBy)))
		}
		fmt.Fprintf(table, "  %s\t%.0f\t%.2f\t%.2f\t%.1f\t%.2f×\t%s\n", l.name,
			redisMiddle(paces[i], func(p redisPace) float64 { return p.rate }),
			redisMiddle(paces[i], func(p redisPace) float64 { return p.commands }),
			redisMiddle(paces[i], func(p redisPace) float64 { return p.reads }),
			redisMiddle(paces[i], func(p redisPace) float64 { return p.processor }), share, strings.Join(promises, "; "))
	}
	_ = table.Flush()
}

func redisShare(ours, theirs []redisPace) float64 {
	shares := make([]float64, len(ours))
	for i := range ours {
		shares[i] = ours[i].rate / theirs[i].rate
	}
	return median(shares)
}

func redisMiddle(paces []redisPace, figure func(redisPace) float64) float64 {
	figures := make([]float64, len(paces))
	for i, p := range paces {
		figures[i] = figure(p)
	}
	return median(figures)
}
