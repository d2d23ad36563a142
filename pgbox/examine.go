package pgbox

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// A Condition is what Examine has found out about a database.
type Condition struct {
	// Version is that of the server, such as "15.14", and Supported whether it is new enough.
	Version   string
	Supported bool
	// Migrations is how many of the WantedMigrations the schema has.
	Migrations, WantedMigrations int
	// Settings has those that matter, as they are for the role: fsync, full_page_writes,
	// synchronous_commit, synchronous_standby_names, default_transaction_isolation,
	// transaction_read_only and autovacuum.
	Settings map[string]string
	// Standbys are those that are connected. Sync is empty if the role may not see it.
	Standbys []Standby
	// Transactions are the oldest ones of other sessions in the database, at most 5, oldest
	// first. HiddenSessions is how many sessions the role may not see.
	Transactions   []Transaction
	HiddenSessions int
	// Tables are those of the schema.
	Tables []Table
}

// A Standby is a server that follows another; see the view pg_stat_replication.
type Standby struct{ Name, State, Sync string }

// A Transaction is one that is open, or prepared if Session is 0.
type Transaction struct {
	Session            int
	Application, State string
	Age                time.Duration
}

// A Table is how full a table is, as the server estimates it.
type Table struct {
	Name              string
	Live, Dead, Bytes int64
}

// Examine reads what an operator should know about the database of a URL, as OpenAddress takes it.
// It changes nothing, and the schema need not exist. Codes: ErrInvalid, ErrUnavailable.
func Examine(ctx context.Context, address string) (*Condition, error) {
	config, options, err := readAddress(address, nil)
	if err != nil {
		return nil, err
	}
	schema := cmp.Or(options.Schema, defaultSchema)
	steps, err := migrations(schema)
	if err != nil {
		return nil, err
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, connectError(config, err)
	}
	defer pool.Close()
	c := &Condition{WantedMigrations: len(steps), Settings: make(map[string]string)}
	if c.Migrations, err = migrated(ctx, pool, schema); err != nil {
		return nil, connectError(config, err)
	}
	for _, part := range []struct {
		sql  string
		args []any
		read func(pgx.Rows) error
	}{
		{"SELECT split_part(current_setting('server_version'), ' ', 1), current_setting('server_version_num')::int >= $1", []any{minServer}, func(rows pgx.Rows) error {
			return rows.Scan(&c.Version, &c.Supported)
		}},
		{settingsSQL, nil, c.readSetting},
		{"SELECT coalesce(application_name, ''), coalesce(state, ''), coalesce(sync_state, '') FROM pg_stat_replication ORDER BY 1", nil, c.readStandby},
		{transactionsSQL, nil, c.readTransaction},
		{"SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND backend_type IS NULL", nil, func(rows pgx.Rows) error {
			return rows.Scan(&c.HiddenSessions)
		}},
		{"SELECT relname, n_live_tup, n_dead_tup, pg_total_relation_size(relid) FROM pg_stat_user_tables WHERE schemaname = $1 ORDER BY relname", []any{schema}, c.readTable},
	} {
		rows, err := pool.Query(ctx, part.sql, append([]any{pgx.QueryExecModeExec}, part.args...)...)
		if err == nil {
			for rows.Next() && err == nil {
				err = part.read(rows)
			}
			rows.Close()
			err = cmp.Or(err, rows.Err())
		}
		if err != nil {
			return nil, connectError(config, fmt.Errorf("examine: %w", err))
		}
	}
	return c, nil
}

const settingsSQL = "SELECT name, setting FROM pg_settings WHERE name IN ('fsync', 'full_page_writes', 'synchronous_commit', " +
	"'synchronous_standby_names', 'default_transaction_isolation', 'transaction_read_only', 'autovacuum')"

// transactionsSQL reads transactions that keep rows which are gone. A prepared one has no session.
const transactionsSQL = "SELECT * FROM (" +
	"SELECT pid, coalesce(application_name, ''), coalesce(state, ''), extract(epoch FROM clock_timestamp() - xact_start)::float8 AS age FROM pg_stat_activity " +
	"WHERE datname = current_database() AND xact_start IS NOT NULL AND backend_type = 'client backend' AND pid <> pg_backend_pid() " +
	"UNION ALL SELECT 0, gid, 'prepared', extract(epoch FROM clock_timestamp() - prepared)::float8 FROM pg_prepared_xacts WHERE database = current_database()) z " +
	"ORDER BY age DESC LIMIT 5"

func (c *Condition) readSetting(rows pgx.Rows) error {
	var name, value string
	err := rows.Scan(&name, &value)
	c.Settings[name] = value
	return err
}

func (c *Condition) readStandby(rows pgx.Rows) error {
	var s Standby
	err := rows.Scan(&s.Name, &s.State, &s.Sync)
	c.Standbys = append(c.Standbys, s)
	return err
}

func (c *Condition) readTransaction(rows pgx.Rows) error {
	var x Transaction
	var seconds float64
	err := rows.Scan(&x.Session, &x.Application, &x.State, &seconds)
	x.Age = time.Duration(seconds * float64(time.Second))
	c.Transactions = append(c.Transactions, x)
	return err
}

func (c *Condition) readTable(rows pgx.Rows) error {
	var table Table
	err := rows.Scan(&table.Name, &table.Live, &table.Dead, &table.Bytes)
	c.Tables = append(c.Tables, table)
	return err
}
