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

func TestPostgresDoctorSaysWhatIsWrong(t *testing.T) {
	server := pgtest.Start(t, "fsync=off", "autovacuum=off")
	environ := []string{"MAILBOXD_BACKEND=" + server.URL()}
	r := mailbox(t, environ, "pg", "doctor")
	for _, want := range []string{
		"ok       server     PostgreSQL ", "failed   tables     the schema has 0 of ", "warning  durability messages do not survive", "warning  settings   autovacuum is off",
		"ok       standbys   the server has no standby", "ok       held       no transaction", "ok       bloat      the tables take 0 B",
	} {
		if r.code != 1 || !strings.Contains(r.stdout, want) {
			t.Errorf("exit code %d, %s%s; want 1 and %q", r.code, r.stdout, r.stderr, want)
		}
	}
	if migrated := mailbox(t, environ, "pg", "migrate"); migrated.code != 0 {
		t.Fatal(migrated.stderr)
	}
	if r := mailbox(t, nil, "pg", "doctor", "--json", server.URL()); r.code != 0 || !strings.Contains(r.stdout, "the tables are up to date") {
		t.Errorf("after the migration: exit code %d, %s%s", r.code, r.stdout, r.stderr)
	}
	other := server.URL() + "&options=-c%20default_transaction_isolation%3Dserializable"
	if r := mailbox(t, nil, "pg", "doctor", other); r.code != 1 || !strings.Contains(r.stdout, "default_transaction_isolation is serializable: set") {
		t.Errorf("another isolation: exit code %d, %s%s", r.code, r.stdout, r.stderr)
	}
	if r := mailbox(t, nil, "pg", "doctor", "postgres://shop:secret@127.0.0.1:1/shop"); r.code == 0 || !strings.Contains(r.stderr, "cannot connect") || strings.Contains(r.stderr, "secret") {
		t.Errorf("no server: exit code %d, %s", r.code, r.stderr)
	}
}
