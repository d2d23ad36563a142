package pgbox_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/stdlib"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/internal/testing/pgtest"
	"github.com/mailboxmq/mailbox/pgbox"
)

// TestEachKindOfTransactionHasEachFunction (PG-2) sends, acks and nacks in transactions of pgx and of database/sql.
func TestEachKindOfTransactionHasEachFunction(t *testing.T) {
	t.Parallel()
	pool := pgtest.Shared(t).Pool(t)
	db := stdlib.OpenDBFromPool(pool)
	defer func() { _ = db.Close() }()
	type message = *mailbox.Message[string]
	type queue = *mailbox.Mailbox[string]
	for name, inTx := range map[string]func(ctx context.Context, q queue, acked, nacked message, cause error) error{
		"pgx": func(ctx context.Context, q queue, acked, nacked message, cause error) error {
			tx, err := pool.Begin(ctx)
			if err != nil {
				return err
			}
			_, first := pgbox.SendTx(ctx, tx, q, "c")
			_, others := pgbox.SendAllTx(ctx, tx, q, []string{"d", "e"})
			return errors.Join(first, others, pgbox.AckTx(ctx, tx, acked), pgbox.NackTx(ctx, tx, nacked, 0, cause), tx.Commit(ctx))
		},
		"database/sql": func(ctx context.Context, q queue, acked, nacked message, cause error) error {
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			_, first := pgbox.SendSQLTx(ctx, tx, q, "c")
			_, others := pgbox.SendAllSQLTx(ctx, tx, q, []string{"d", "e"})
			return errors.Join(first, others, pgbox.AckSQLTx(ctx, tx, acked), pgbox.NackSQLTx(ctx, tx, nacked, 0, cause), tx.Commit())
		},
	} {
		t.Run(name, func(t *testing.T) {
			backend, err := pgbox.Open(t.Context(), pool, &pgbox.Options{Schema: pgtest.Schema(), Migrate: true})
			expect(t, err)
			defer func() { _ = backend.Close() }()
			q, err := mailbox.Open[string](t.Context(), backend, "letters", nil)
			expect(t, err)
			_, err = q.SendAll(t.Context(), []string{"a", "b"})
			expect(t, err)
			got := receive(t, q, 2)
			expect(t, inTx(t.Context(), q, got[0], got[1], errors.New("later")))
			var bodies []string
			for _, m := range receive(t, q, 4) {
				bodies = append(bodies, m.Body)
				if (m.LastError == "later") != (m.Body == "b") {
					t.Errorf("%s has last error %q", m.Body, m.LastError)
				}
			}
			if stats, err := q.Stats(t.Context()); err != nil || stats.Waiting() != 4 || !slices.Equal(slices.Sorted(slices.Values(bodies)), []string{"b", "c", "d", "e"}) {
				t.Errorf("received %v, %+v, %v; want b to e", bodies, stats, err)
			}
		})
	}
}

func expect(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// receive receives messages until there are n.
func receive(t *testing.T, q *mailbox.Mailbox[string], n int) (got []*mailbox.Message[string]) {
	t.Helper()
	for len(got) < n {
		more, err := q.Receive(t.Context(), mailbox.WithMax(n-len(got)), mailbox.WithWait(time.Minute))
		expect(t, err)
		got = append(got, more...)
	}
	return got
}
