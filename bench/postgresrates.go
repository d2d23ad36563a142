package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5"
)

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
	results.Slot = (5 * r.each).String()
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "clients\tbatch\tqueue\tmessages/s\tserver µs\tclient µs\tWAL bytes\tpgbox's rate / its")
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
			for _, a := range all {
				p := a.median()
				fmt.Fprintf(table, "%d\t%d\t%s\t%.0f\t%.0f\t%.0f\t%.0f\t%.2f\n", clients, batch, a.Name, p.Rate, p.ServerCPU, p.ClientCPU, p.WAL, all[0].over(a))
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

// over returns the median of the ratios of rates in each round.
func (r postgresRates) over(other postgresRates) float64 {
	var ratios []float64
	for i := range r.Rounds {
		ratios = append(ratios, r.Rounds[i].Rate/other.Rounds[i].Rate)
	}
	return median(ratios)
}

// ratesPage returns a page with the table of rates of a file that -json wrote.
func ratesPage(page, file string) (string, error) {
	return rewritePage(page, "bench/results/postgres/rates.json", file, func(out *strings.Builder, results *postgresResults) {
		fmt.Fprintf(out, "`%s` on %s, PostgreSQL %s with default settings, %d processors (%s), Linux %s, %s; medians of %d rounds of %s; load average %s at the start.\n\n",
			results.Command, results.Time.Format("2 January 2006"), results.Version, results.Machine.Cores, results.Machine.Processor,
			results.Machine.Kernel, results.Machine.Filesystem, len(results.Rates[0].Rounds), results.Slot, results.Machine.Load)
		t := daemonTable{title: "rates: messages of 256 bytes, sent, received and acked",
			head: []string{"messages a call", "clients", "messages/s, pgbox / River / table", "pgbox is as fast as River / the table times", "server's CPU µs a message", "client's CPU µs a message", "WAL bytes a message"}}
		for first := 0; first+2 < len(results.Rates); first += 3 {
			group := results.Rates[first : first+3]
			each := func(value func(postgresPace) float64) string {
				var parts []string
				for _, g := range group {
					parts = append(parts, grouped(value(g.median())))
				}
				return strings.Join(parts, " / ")
			}
			t.rows = append(t.rows, []string{strconv.Itoa(group[0].Batch), strconv.Itoa(group[0].Clients), each(func(p postgresPace) float64 { return p.Rate }),
				fmt.Sprintf("%.1f / %.1f", group[0].over(group[1]), group[0].over(group[2])), each(func(p postgresPace) float64 { return p.ServerCPU }),
				each(func(p postgresPace) float64 { return p.ClientCPU }), each(func(p postgresPace) float64 { return p.WAL })})
		}
		t.markdown(out)
	})
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
