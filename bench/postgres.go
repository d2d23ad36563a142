package main

import (
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
	// claim is a part of the statement that claims messages, and head the rows of its answer that are none.
	claim string
	head  int64
	// open connects workers to a new database. The tracer, if it is not nil, sees their statements.
	open func(stand *daemonStand, url string, tracer pgx.QueryTracer) error
}

// postgresPeers are those of the suite. steady: messages come at a steady rate that is far from the limit.
func postgresPeers(steady bool) []postgresPeer {
	return []postgresPeer{
		{"pgbox", ".receive(", 1, openPgbox},
		{"river", "JobGetAvailable", 0, func(s *daemonStand, url string, tracer pgx.QueryTracer) error {
			fetching := riverFetching{cooldown: time.Millisecond, poll: time.Millisecond, workers: s.shape.workers * s.shape.batch}
			if steady { // thousands of fetches a second for hundreds of messages would not be what users run
				fetching = riverFetching{cooldown: 20 * time.Millisecond, poll: 100 * time.Millisecond, workers: 100}
			}
			return s.startRiver(url, fetching, tracer)
		}},
		{"table", "SKIP LOCKED", 0, openTable},
	}
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

func openPgbox(s *daemonStand, url string, tracer pgx.QueryTracer) error {
	ctx := context.Background()
	pool, err := s.connect(url, tracer)
	if err != nil {
		return err
	}
	backend, err := pgbox.Open(ctx, pool, &pgbox.Options{Migrate: true})
	if err != nil {
		return err
	}
	s.onDisconnect(backend.Close)
	if err := backend.ConfigureQueue(ctx, daemonQueue, driver.Config{}); err != nil {
		return err
	}
	queue, err := backend.OpenQueue(ctx, daemonQueue)
	if err != nil {
		return err
	}
	s.onDisconnect(queue.Close)
	for i := range s.shape.workers {
		s.produceTo([]driver.Queue{queue}, i)
		s.consumers = append(s.consumers, &pullConsumer{queues: []driver.Queue{queue}, batch: s.shape.batch, rotation: s.shape.rotation(i)})
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
	text, err := json.MarshalIndent(results, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(r.json, append(text, '\n'), 0o644)
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
