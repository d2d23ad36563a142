package pgbox

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/pgtest"
)

// earlierCalls are the statements that an earlier version sent to a schema: the files of testdata/calls, named by the number of its last migration, have one a line.
type earlierCalls struct {
	pool   *pgxpool.Pool
	schema string
	texts  []string
}

var parameter = regexp.MustCompile(`\$\d+`)

// call makes the call of a function with arguments that are literals.
func (c *earlierCalls) call(t *testing.T, function string, args ...any) (rows []map[string]any) {
	t.Helper()
	for _, text := range c.texts {
		if !strings.Contains(text, "."+function+"(") {
			continue
		}
		text = parameter.ReplaceAllStringFunc(text, func(name string) string {
			n, _ := strconv.Atoi(name[1:])
			return fmt.Sprint(args[n-1])
		})
		result, err := c.pool.Query(t.Context(), text, pgx.QueryExecModeExec)
		ok(t, err)
		rows, err = pgx.CollectRows(result, pgx.RowToMap)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		return rows
	}
	t.Fatalf("no statement calls %s", function)
	return nil
}

// describe returns the types of parameters and results of each statement.
func (c *earlierCalls) describe(t *testing.T) (all []string) {
	t.Helper()
	conn, err := c.pool.Acquire(t.Context())
	ok(t, err)
	defer conn.Release()
	for _, text := range c.texts {
		d, err := conn.Conn().PgConn().Prepare(t.Context(), "", text, nil)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		line := fmt.Sprint(text, ": ", d.ParamOIDs)
		for _, f := range d.Fields {
			line += fmt.Sprint(" ", f.Name, " ", f.DataTypeOID)
		}
		all = append(all, line)
	}
	return all
}

// send sends messages with these numbers as ids and bodies.
func (c *earlierCalls) send(t *testing.T, qid int, numbers ...int) {
	t.Helper()
	none := "'{" + strings.TrimSuffix(strings.Repeat("NULL,", len(numbers)), ",") + "}'"
	zeros := "'{" + strings.TrimSuffix(strings.Repeat("0,", len(numbers)), ",") + "}'"
	var ids, bodies []string
	for _, n := range numbers {
		ids, bodies = append(ids, fmt.Sprintf("%032d", n)), append(bodies, fmt.Sprint(n))
	}
	rows := c.call(t, "send_from", qid, zeros, "'{"+strings.Join(ids, ",")+"}'", "'{"+strings.Join(bodies, ",")+"}'", none, none, zeros,
		"NULL", "NULL", "NULL", false, false, 0, 0, "NULL", "NULL", "NULL", "NULL", "NULL", false)
	if rows[0]["codes"] != "" {
		t.Fatalf("sent %v: %v", numbers, rows[0])
	}
}

// receive receives messages behind the marks of a process, and expects these bodies. It returns the arguments of a settlement of each.
func (c *earlierCalls) receive(t *testing.T, qid, most int, want string) (receipts [][]any) {
	t.Helper()
	text := ""
	for _, row := range c.call(t, "receive", qid, 0, fmt.Sprintf("'{%d}'", most), "'{0}'", fmt.Sprintf("'{%d}'", hold.Microseconds()), 7, 0, 0, false, false, "NULL") {
		if row["request"] != int32(-1) {
			text += string(row["body"].([]byte))
			receipts = append(receipts, []any{"'{0}'", fmt.Sprintf("'{%d}'", row["seq"]), fmt.Sprintf("'{%d}'", row["nonce"]), fmt.Sprintf("'{%x}'", row["id"])})
		}
	}
	if text != want {
		t.Fatalf("received %q, want %q", text, want)
	}
	return receipts
}

// settle settles a delivery: a ack, or r release.
func (c *earlierCalls) settle(t *testing.T, qid int, what string, receipt []any) {
	t.Helper()
	var code any
	if what == "a" {
		code = c.call(t, "settle", append(append([]any{qid, "'a'"}, receipt...), "NULL", "NULL", "NULL", "NULL", false, 0, 0, "NULL")...)[0]["codes"]
	} else {
		code = c.call(t, "settle", append(append([]any{qid, "'n'"}, receipt...), "'{0}'", "NULL", "NULL", "'{"+what+"}'", false, 0, 0, "NULL")...)[0]["codes"]
	}
	if code != "s" {
		t.Fatalf("settlement %s: code %v, want s", what, code)
	}
}

// TestEarlierCallsWorkOnNewestSchema migrates schemas while a process of an earlier version uses them, which sends what it sent before: its statements mean the same, and it shares the queue
// with a process of this version.
func TestEarlierCallsWorkOnNewestSchema(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/calls/*.sql")
	ok(t, err)
	for _, file := range files {
		number, err := strconv.Atoi(strings.TrimSuffix(filepath.Base(file), ".sql"))
		ok(t, err)
		text, err := os.ReadFile(file)
		ok(t, err)
		for _, strict := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d, strict %t", number, strict), func(t *testing.T) {
				t.Parallel()
				c := &earlierCalls{pool: pgtest.Shared(t).Pool(t), schema: pgtest.Schema()}
				c.texts = strings.Split(strings.TrimSpace(strings.ReplaceAll(string(text), "mailbox.", c.schema+".")), "\n")
				migrateTo(t, c.pool, c.schema, number)
				before := c.describe(t)
				rules := "'{1,0,100,100000,0,0,0,0,0,0,0,0,0,0,60000000}'"
				c.call(t, "configure_limited", "'orders'", 0, "'first'", "'{}'", strict, false, "''", rules, false, "'{}'", "'{}'")
				const qid = 1
				c.send(t, qid, 1, 2, 3)
				taken := c.receive(t, qid, 1, "1")[0]
				q, err := open(t, c.pool, &Options{Schema: c.schema}).OpenQueue(t.Context(), "orders")
				ok(t, err)
				for i, after := range c.describe(t) {
					if after != before[i] {
						t.Errorf("a statement changed from %s to %s", before[i], after)
					}
				}
				c.settle(t, qid, "r", taken)
				_, got := receiveBodies(t, q, 1)
				if string(got[0].Body) != "1" {
					t.Fatalf("received %q, want 1, which the other process released", got[0].Body)
				}
				ok(t, q.Nack(t.Context(), []driver.Nack{{Receipt: got[0].Receipt, Mode: driver.NackRelease}}))
				c.settle(t, qid, "a", c.receive(t, qid, 1, "1")[0])
				_, err = q.Send(t.Context(), outgoing("4"))
				ok(t, err)
				c.send(t, qid, 5)
				for _, receipt := range c.receive(t, qid, 3, "234") {
					c.settle(t, qid, "a", receipt)
				}
				if text, _ := receiveBodies(t, q, 1); text != "5" {
					t.Errorf("received %q, want 5", text)
				}
			})
		}
	}
}
