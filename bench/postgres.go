package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
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
	results := postgresResults{Machine: thisMachine(r.dir)}
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

// A postgresRates is how fast one queue was with so many clients, round by round.
type postgresRates struct {
	Name    string         `json:"name"`
	Clients int            `json:"clients"`
	Batch   int            `json:"batch"`
	Rounds  []postgresPace `json:"rounds"`
}

// A postgresPace is a pace with the bytes of WAL a message.
type postgresPace struct {
	daemonPace
	WAL float64 `json:"wal_bytes"`
}

// postgresRates measures the rates of all peers with 1 to 64 clients, in turns.
func (r *report) postgresRates(results *postgresResults, wants func([]string, string) bool) error {
	server, err := startPostgres(r.dir)
	if err != nil {
		return err
	}
	defer func() { _ = server.close() }()
	if results.Version, err = server.version(); err != nil {
		return err
	}
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "clients\tbatch\tqueue\tmessages/s\tserver µs\tclient µs\tWAL bytes\tof pgbox's rate")
	for _, batch := range []int{1, 10} {
		for _, clients := range []int{1, 4, 16, 64} {
			var all []postgresRates
			for _, peer := range postgresPeers(false) {
				if wants(r.peers, peer.name) {
					all = append(all, postgresRates{Name: peer.name, Clients: clients, Batch: batch})
				}
			}
			for range r.rounds {
				for i := range all {
					pace, err := r.postgresRound(server, all[i].Name, clients, batch)
					if err != nil {
						return fmt.Errorf("%s with %d clients: %w", all[i].Name, clients, err)
					}
					all[i].Rounds = append(all[i].Rounds, pace)
				}
			}
			ours := 0.0
			for _, a := range all {
				p := a.median()
				if ours == 0 {
					ours = p.Rate
				}
				fmt.Fprintf(table, "%d\t%d\t%s\t%.0f\t%.0f\t%.0f\t%.0f\t%.2f\n", clients, batch, a.Name, p.Rate, p.ServerCPU, p.ClientCPU, p.WAL, p.Rate/ours)
			}
			_ = table.Flush()
			results.Rates = append(results.Rates, all...)
		}
	}
	return nil
}

// median returns the round with the median rate.
func (r postgresRates) median() postgresPace {
	rounds := slices.SortedFunc(slices.Values(r.Rounds), func(a, b postgresPace) int { return int(a.Rate - b.Rate) })
	return rounds[len(rounds)/2]
}

// postgresRound measures one queue in a new database.
func (r *report) postgresRound(server *postgresServer, name string, clients, batch int) (pace postgresPace, err error) {
	ctx := context.Background()
	admin, err := pgx.Connect(ctx, server.url)
	if err != nil {
		return pace, err
	}
	defer func() { _ = admin.Close(ctx) }()
	database := fmt.Sprintf("bench_%d", time.Now().UnixNano())
	if _, err := admin.Exec(ctx, "CREATE DATABASE "+database); err != nil {
		return pace, err
	}
	defer func() {
		_, failure := admin.Exec(ctx, "DROP DATABASE "+database+" WITH (FORCE)")
		err = errors.Join(err, failure)
	}()
	url := strings.Replace(server.url, "dbname=postgres", "dbname="+database, 1)
	stand := &daemonStand{process: &daemonProcess{command: server.command}, shape: daemonShape{workers: clients, batch: batch, queues: 1, body: bodyBytes}}
	peers := postgresPeers(false)
	peer := peers[slices.IndexFunc(peers, func(p postgresPeer) bool { return p.name == name })]
	defer func() {
		if stand.disconnect != nil {
			err = errors.Join(err, stand.disconnect())
		}
	}()
	if err := peer.open(stand, url, nil); err != nil {
		return pace, err
	}
	if _, err := stand.flood(r.each); err != nil { // to warm up
		return pace, err
	}
	var before, after int64
	const position = "SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint"
	if err := admin.QueryRow(ctx, position).Scan(&before); err != nil {
		return pace, err
	}
	if pace.daemonPace, err = stand.flood(5 * r.each); err != nil {
		return pace, err
	}
	if err := admin.QueryRow(ctx, position).Scan(&after); err != nil {
		return pace, err
	}
	pace.WAL = float64(after-before) / (pace.Rate * 5 * r.each.Seconds())
	return pace, nil
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
