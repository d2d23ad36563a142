package cli_test

import (
	"strings"
	"testing"

	"github.com/mailboxmq/mailbox/internal/testing/pgtest"
	"github.com/mailboxmq/mailbox/pgbox"
)

func TestMigrateShowsItsStatementsAndRunsThem(t *testing.T) {
	server := pgtest.Start(t, "fsync=off")
	address := server.URL() + "&schema=shop"
	environ := []string{"MAILBOXD_BACKEND=" + address}
	shown := mailbox(t, nil, "pg", "migrate", "--dry-run", address)
	if shown.code != 0 || !strings.HasPrefix(shown.stdout, "CREATE SCHEMA IF NOT EXISTS shop;") || !strings.Contains(shown.stdout, "CREATE TABLE shop.message") {
		t.Fatalf("dry run: %d %s %.300s", shown.code, shown.stderr, shown.stdout)
	}
	if again := mailbox(t, environ, "pg", "migrate", "--dry-run"); again.stdout != shown.stdout {
		t.Error("the dry run has changed something")
	}
	for _, want := range []string{"The tables are up to date now.\n", "The tables were up to date.\n"} {
		if r := mailbox(t, environ, "pg", "migrate"); r.code != 0 || r.stdout != want {
			t.Errorf("migrate: %d %s %q, want %q", r.code, r.stderr, r.stdout, want)
		}
	}
	if r := mailbox(t, environ, "pg", "migrate", "--dry-run"); r.stdout != "-- The tables are up to date.\n" {
		t.Errorf("dry run afterwards: %q", r.stdout)
	}
	// The statements that are shown make the same schema.
	other := strings.ReplaceAll(shown.stdout, "shop", "by_hand")
	if _, err := server.Pool(t).Exec(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	backend, err := pgbox.Open(t.Context(), server.Pool(t), &pgbox.Options{Schema: "by_hand"})
	if err != nil {
		t.Fatal(err)
	}
	if err := backend.Close(); err != nil {
		t.Error(err)
	}
}

func TestMigrateSaysWhatIsWrong(t *testing.T) {
	for _, test := range []struct {
		args []string
		want string
	}{
		{nil, "want postgres://USER@HOST:PORT/DATABASE"},
		{[]string{"redis://shop:secret@127.0.0.1"}, "want postgres://USER:PASSWORD@HOST:PORT/DATABASE"},
		{[]string{"postgres://shop:secret@127.0.0.1:1/shop"}, "cannot connect to PostgreSQL at 127.0.0.1:1"},
	} {
		r := mailbox(t, nil, append([]string{"pg", "migrate"}, test.args...)...)
		if r.code == 0 || !strings.Contains(r.stderr, test.want) || strings.Contains(r.stderr, "secret") {
			t.Errorf("%v: exit code %d, %s; want %q", test.args, r.code, r.stderr, test.want)
		}
	}
}
