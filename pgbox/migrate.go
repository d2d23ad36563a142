package pgbox

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/backoff"
)

// Migrations are folders of sql, numbered from 1. In their files, mailbox. stands for the schema.
//
//go:embed sql
var migrationFiles embed.FS

// A migration is one step of the schema.
type migration struct {
	number int
	sql    string
}

// migrations returns all steps, in order, for a schema.
func migrations(schema string) ([]migration, error) {
	folders, err := fs.ReadDir(migrationFiles, "sql")
	if err != nil {
		return nil, err
	}
	var all []migration
	for i, folder := range folders {
		files, err := fs.Glob(migrationFiles, "sql/"+folder.Name()+"/*.sql")
		if err != nil {
			return nil, err
		}
		slices.Sort(files)
		var text strings.Builder
		for _, file := range files {
			part, err := fs.ReadFile(migrationFiles, file)
			if err != nil {
				return nil, err
			}
			text.Write(part)
			text.WriteString("\n")
		}
		sql := strings.NewReplacer("mailbox.", schema+".", "{{schema}}", schema).Replace(text.String())
		all = append(all, migration{number: i + 1, sql: sql})
	}
	return all, nil
}

// MigrationSQL returns the statements that OpenAddress with the same URL would run to bring the
// schema up to date, for those who run them with another tool; none if there is nothing to do.
// It changes nothing. Codes: ErrInvalid, ErrUnavailable.
func MigrationSQL(ctx context.Context, address string) (statements string, err error) {
	config, options, err := readAddress(address, nil)
	if err != nil {
		return "", err
	}
	schema := cmp.Or(options.Schema, defaultSchema)
	steps, err := migrations(schema)
	if err != nil {
		return "", err
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return "", connectError(config, err)
	}
	defer pool.Close()
	done, err := migrated(ctx, pool, schema)
	if err != nil {
		return "", connectError(config, err)
	}
	var text strings.Builder
	if done == 0 {
		text.WriteString(firstSQL(schema) + ";\n")
	}
	for _, step := range steps[min(done, len(steps)):] {
		fmt.Fprintf(&text, "-- Migration %d\n%sINSERT INTO %s.migration (number) VALUES (%d);\n", step.number, step.sql, schema, step.number)
	}
	return text.String(), nil
}

// firstSQL returns the statements that come before the first migration.
func firstSQL(schema string) string {
	return fmt.Sprintf("CREATE SCHEMA IF NOT EXISTS %[1]s;\nCREATE TABLE IF NOT EXISTS %[1]s.migration (number int PRIMARY KEY, at timestamptz NOT NULL DEFAULT now())", schema)
}

// Migrate brings the schema up to date; an empty name means "mailbox". Several processes
// may call it at once. It needs the right to create in the database if there is something to
// do, and otherwise only to read. While transactions of others hold locks of the tables, it waits, in turns with
// the calls that would have to wait for it. Codes: ErrInvalid (the schema), ErrUnavailable.
func Migrate(ctx context.Context, pool *pgxpool.Pool, schema string) error {
	if schema == "" {
		schema = defaultSchema
	}
	if err := checkSchema(schema); err != nil {
		return err
	}
	steps, err := migrations(schema)
	if err != nil {
		return err
	}
	if done, err := migrated(ctx, pool, schema); err != nil || done >= len(steps) {
		return err
	}
	for wait := firstLockWait; ; wait *= 2 {
		err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return migrate(ctx, tx, schema, steps, wait) })
		if condition, ok := errors.AsType[*pgconn.PgError](err); !ok || condition.Code != lockTimeout || backoff.Pause(ctx, wait) != nil {
			break
		}
	}
	if err != nil {
		return &driver.Error{Code: driver.ErrUnavailable, Op: "migrate", Detail: "schema " + schema, Err: err}
	}
	return nil
}

// firstLockWait is how long a migration waits for the lock of a table at first. Calls of other processes wait behind
// it, so it gives up before they notice, and tries again; each time it waits twice as long.
const firstLockWait = 250 * time.Millisecond

// migrate runs the missing steps in a transaction. It prepares no statements: behind a pooler, clients share those of a connection.
func migrate(ctx context.Context, tx pgx.Tx, schema string, steps []migration, lockWait time.Duration) error {
	// Two processes must not create the same tables.
	if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", pgx.QueryExecModeExec, "mailbox migrations "+schema); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, fmt.Sprintf("SET LOCAL lock_timeout = %d", lockWait.Milliseconds())); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, firstSQL(schema), pgx.QueryExecModeSimpleProtocol); err != nil {
		return err
	}
	var done int
	if err := tx.QueryRow(ctx, fmt.Sprintf("SELECT coalesce(max(number), 0) FROM %s.migration", schema), pgx.QueryExecModeExec).Scan(&done); err != nil {
		return err
	}
	for _, step := range steps[min(done, len(steps)):] {
		if _, err := tx.Exec(ctx, step.sql, pgx.QueryExecModeSimpleProtocol); err != nil {
			return fmt.Errorf("migration %d: %w", step.number, err)
		}
		if _, err := tx.Exec(ctx, fmt.Sprintf("INSERT INTO %s.migration (number) VALUES ($1)", schema), pgx.QueryExecModeExec, step.number); err != nil {
			return err
		}
	}
	return nil
}

// The conditions of a database in which nothing was migrated, and of a lock that was not to be had in time.
const (
	noSchema    = "3F000"
	noTable     = "42P01"
	lockTimeout = "55P03"
)

// migrated returns how many steps a schema has.
func migrated(ctx context.Context, pool *pgxpool.Pool, schema string) (done int, err error) {
	err = pool.QueryRow(ctx, fmt.Sprintf("SELECT coalesce(max(number), 0) FROM %s.migration", schema), pgx.QueryExecModeExec).Scan(&done)
	if condition, ok := errors.AsType[*pgconn.PgError](err); ok && (condition.Code == noSchema || condition.Code == noTable) {
		return 0, nil
	}
	if err != nil {
		return 0, &driver.Error{Code: driver.ErrUnavailable, Op: "open", Err: err}
	}
	return done, nil
}
