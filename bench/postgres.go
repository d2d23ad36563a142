package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/pgbox"
)

// A postgresPeer is a queue in PostgreSQL.
type postgresPeer struct {
	name string
	// claims are parts of the statements that claim messages, and head the rows of their answers that are none.
	claims []string
	head   int64
	// open connects workers to a new database. The tracer, if it is not nil, sees their statements.
	open func(stand *daemonStand, url string, tracer pgx.QueryTracer) error
}

// pgboxClaims are parts of the statements by which pgbox claims messages.
var pgboxClaims = []string{".take(", ".receive("}

// postgresPeers are those of the suite. steady: messages come at a steady rate that is far from the limit, and pgbox runs in further ways.
func postgresPeers(steady bool) []postgresPeer {
	peers := []postgresPeer{
		{"pgbox", pgboxClaims, 1, openPgbox(driver.Config{}, 0)},
		{"river", []string{"JobGetAvailable"}, 0, func(s *daemonStand, url string, tracer pgx.QueryTracer) error {
			fetching := riverFetching{cooldown: time.Millisecond, poll: time.Millisecond, workers: s.shape.workers * s.shape.batch}
			if steady { // thousands of fetches a second for hundreds of messages would not be what users run
				fetching = riverFetching{cooldown: 20 * time.Millisecond, poll: 100 * time.Millisecond, workers: 100}
			}
			return s.startRiver(url, fetching, tracer)
		}},
		{"table", []string{"SKIP LOCKED"}, 0, openTable},
	}
	if steady {
		peers = append(peers, heldVariants()...)
	}
	return peers
}

// postgresConnections is the size of each pool.
const postgresConnections = 32

// connect opens a pool, which disconnect closes.
func (s *daemonStand) connect(url string, tracer pgx.QueryTracer) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	config.MaxConns = postgresConnections
	config.ConnConfig.Tracer = tracer
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		return nil, err
	}
	s.onDisconnect(func() error {
		pool.Close()
		return nil
	})
	return pool, nil
}

// openPgbox returns a function that connects workers to a queue with a configuration. Consumers nack one of so many messages when they get it first; 0 is none.
func openPgbox(config driver.Config, nacked int) func(s *daemonStand, url string, tracer pgx.QueryTracer) error {
	return func(s *daemonStand, url string, tracer pgx.QueryTracer) error {
		pool, err := s.connect(url, tracer)
		if err != nil {
			return err
		}
		return s.startPgbox(pool, config, nacked)
	}
}

func (s *daemonStand) startPgbox(pool *pgxpool.Pool, config driver.Config, nacked int) error {
	ctx := context.Background()
	backend, err := pgbox.Open(ctx, pool, &pgbox.Options{Migrate: true})
	if err != nil {
		return err
	}
	s.onDisconnect(backend.Close)
	if err := backend.ConfigureQueue(ctx, daemonQueue, config); err != nil {
		return err
	}
	queue, err := backend.OpenQueue(ctx, daemonQueue)
	if err != nil {
		return err
	}
	s.onDisconnect(queue.Close)
	for i := range s.shape.workers {
		if config.StrictGroups {
			s.produceGroups(queue)
		} else {
			s.produceTo([]driver.Queue{queue}, i)
		}
		consumer := &pullConsumer{queues: []driver.Queue{queue}, batch: s.shape.batch, rotation: s.shape.rotation(i)}
		if nacked > 0 {
			s.consumers = append(s.consumers, &nackingConsumer{pullConsumer: consumer, every: nacked})
		} else {
			s.consumers = append(s.consumers, consumer)
		}
	}
	return nil
}

// tablePoll is how long a consumer of the plain table waits when it is empty.
const tablePoll = 5 * time.Millisecond

// openTable makes the queue that many programs have: a table, claims that skip locked rows, and acks that delete.
func openTable(s *daemonStand, url string, tracer pgx.QueryTracer) error {
	ctx := context.Background()
	pool, err := s.connect(url, tracer)
	if err != nil {
		return err
	}
	_, err = pool.Exec(ctx, `CREATE TABLE job (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, running bool NOT NULL DEFAULT false,
		due timestamptz, deliveries int NOT NULL DEFAULT 0, body bytea NOT NULL);
		CREATE INDEX job_ready ON job (id) WHERE NOT running; CREATE INDEX job_due ON job (due) WHERE running`, pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		return err
	}
	for range s.shape.workers {
		s.producers = append(s.producers, func(bodies [][]byte) error {
			_, err := pool.Exec(ctx, "INSERT INTO job (body) SELECT unnest($1::bytea[])", bodies)
			return err
		})
		s.consumers = append(s.consumers, &tableConsumer{pool: pool, batch: s.shape.batch})
	}
	return nil
}

type tableConsumer struct {
	pool  *pgxpool.Pool
	batch int
	ids   []int64
}

func (c *tableConsumer) receive() (bodies [][]byte, err error) {
	for end := time.Now().Add(daemonWait); len(bodies) == 0 && err == nil && time.Now().Before(end); {
		if bodies, err = c.claim(); len(bodies) == 0 {
			time.Sleep(tablePoll)
		}
	}
	return bodies, err
}

func (c *tableConsumer) claim() (bodies [][]byte, err error) {
	rows, err := c.pool.Query(context.Background(), `UPDATE job SET running = true, due = now() + interval '1 minute', deliveries = deliveries + 1
		WHERE id = ANY (ARRAY(SELECT id FROM job WHERE NOT running ORDER BY id LIMIT $1 FOR UPDATE SKIP LOCKED)) RETURNING id, body`, c.batch)
	if err != nil {
		return nil, err
	}
	c.ids = c.ids[:0]
	var id int64
	var body []byte
	_, err = pgx.ForEachRow(rows, []any{&id, &body}, func() error {
		c.ids, bodies = append(c.ids, id), append(bodies, slices.Clone(body))
		return nil
	})
	return bodies, err
}

func (c *tableConsumer) ack() error {
	_, err := c.pool.Exec(context.Background(), "DELETE FROM job WHERE id = ANY ($1)", c.ids)
	return err
}

// postgresResults are the figures of the suite.
type postgresResults struct {
	Machine machine         `json:"machine"`
	Version string          `json:"postgresql"`
	Command string          `json:"command,omitempty"`
	Time    time.Time       `json:"time,omitzero"`
	Slot    string          `json:"slot,omitempty"`
	Held    []heldSeries    `json:"held,omitempty"`
	Rates   []postgresRates `json:"rates,omitempty"`
}

// postgresSuite compares queues in PostgreSQL, one after the other.
func postgresSuite(r *report) {
	if err := r.postgres(); err != nil {
		fmt.Fprintln(os.Stderr, "PostgreSQL:", err)
		if !errors.Is(err, errMissing) {
			os.Exit(1)
		}
	}
}

func (r *report) postgres() error {
	results := postgresResults{Machine: thisMachine(r.dir), Command: "go run . " + strings.Join(os.Args[1:], " "), Time: time.Now().UTC().Truncate(time.Second)}
	wants := func(list []string, name string) bool { return len(list) == 0 || slices.Contains(list, name) }
	if wants(r.workloads, "held") {
		for _, peer := range postgresPeers(true) {
			if !wants(r.peers, peer.name) {
				continue
			}
			series, err := r.hold(peer, &results.Version)
			if err != nil {
				return fmt.Errorf("%s: %w", peer.name, err)
			}
			results.Held = append(results.Held, series)
			if err := r.savePostgres(&results); err != nil {
				return err
			}
		}
	}
	if wants(r.workloads, "rates") {
		if err := r.postgresRates(&results, wants); err != nil {
			return err
		}
	}
	return r.savePostgres(&results)
}

func (r *report) savePostgres(results *postgresResults) error {
	if r.json == "" {
		return nil
	}
	merged, err := readPostgres(r.json)
	if err != nil {
		return err
	}
	merged.merge(results)
	text, err := json.MarshalIndent(merged, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(r.json, append(text, '\n'), 0o644)
}

// readPostgres reads the figures of an earlier run, if there is one.
func readPostgres(file string) (results postgresResults, err error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return results, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &results)
	}
	if err != nil {
		return results, fmt.Errorf("%s: %w", file, err)
	}
	return results, nil
}

// merge replaces what another run has measured too, and adds the rest of it. The machine is that of the other run.
func (p *postgresResults) merge(other *postgresResults) {
	p.Machine, p.Version = other.Machine, cmp.Or(other.Version, p.Version)
	for _, series := range other.Held {
		if i := slices.IndexFunc(p.Held, func(s heldSeries) bool { return s.Name == series.Name }); i >= 0 {
			p.Held[i] = series
		} else {
			p.Held = append(p.Held, series)
		}
	}
	for _, rates := range other.Rates {
		same := func(r postgresRates) bool {
			return r.Name == rates.Name && r.Clients == rates.Clients && r.Batch == rates.Batch
		}
		if i := slices.IndexFunc(p.Rates, same); i >= 0 {
			p.Rates[i] = rates
		} else {
			p.Rates = append(p.Rates, rates)
		}
	}
}

// version returns that of the server.
func (s *postgresServer) version() (text string, err error) {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, s.url)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close(ctx) }()
	err = conn.QueryRow(ctx, "SHOW server_version").Scan(&text)
	return text, err
}
