package pgbox

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/pgtest"
)

// TestDocumentedGrantsSuffice uses a backend as a role that has what docs/postgres.md grants.
func TestDocumentedGrantsSuffice(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/postgres.md")
	ok(t, err)
	_, grants, _ := strings.Cut(string(page), "```sql\nGRANT")
	grants, _, found := strings.Cut("GRANT"+grants, "```")
	if !found {
		t.Fatal("docs/postgres.md has no grants")
	}
	server, schema := pgtest.Shared(t), pgtest.Schema()
	owner := open(t, server.Pool(t), &Options{Schema: schema})
	role := schema + "_shop"
	grants = strings.NewReplacer("SCHEMA mailbox", "SCHEMA "+schema, "TO shop", "TO "+role).Replace(grants)
	_, err = owner.pool.Exec(t.Context(), "CREATE ROLE "+role+" LOGIN; "+grants, pgx.QueryExecModeSimpleProtocol)
	ok(t, err)
	b, err := Open(t.Context(), connect(t, strings.ReplaceAll(server.URL(), "user=mailbox", "user="+role)), &Options{Schema: schema})
	ok(t, err)
	defer func() { ok(t, b.Close()) }()
	q, err := b.OpenQueue(t.Context(), "orders")
	ok(t, err)
	_, err = q.Send(t.Context(), []driver.Outgoing{{Body: []byte("a"), DedupKey: "a", Group: "g"}, {Body: []byte("b"), UniqueKey: "b", Delay: 1}})
	ok(t, err)
	got, err := q.Receive(t.Context(), driver.ReceiveRequest{Max: 1, Visibility: time.Minute, Wait: time.Minute})
	ok(t, err)
	ok(t, q.Ack(t.Context(), []driver.Receipt{got[0].Receipt}))
	if user := currentUser(t, b); user != role {
		t.Errorf("the test was run by %s", user)
	}
}

func currentUser(t *testing.T, b *Backend) (name string) {
	t.Helper()
	ok(t, b.pool.QueryRow(t.Context(), "SELECT current_user").Scan(&name))
	return name
}
