package pgbox

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/pgtest"
)

// A planNode is a part of a plan as EXPLAIN prints it.
type planNode struct {
	Type      string `json:"Node Type"`
	Relation  string `json:"Relation Name"`
	Index     string `json:"Index Name"`
	IndexCond string `json:"Index Cond"`
	Filter    string
	Plans     []planNode
}

// A statementPlan is a statement within a call and its plan.
type statementPlan struct {
	Query string `json:"Query Text"`
	Plan  planNode
}

// plans collects the plans of all statements of a pool, also of those in functions.
type plans struct {
	mu   sync.Mutex // guards the fields below
	seen []statementPlan
	errs []error
}

// explained returns a pool whose sessions tell the plan of each statement that they run.
func explained(t *testing.T, server *pgtest.Server) (*pgxpool.Pool, *plans) {
	t.Helper()
	config, err := pgxpool.ParseConfig(server.URL())
	ok(t, err)
	p := &plans{}
	config.ConnConfig.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) { p.note(n.Message) }
	for name, value := range map[string]string{
		"session_preload_libraries": "auto_explain", "auto_explain.log_min_duration": "0", "auto_explain.log_nested_statements": "on",
		"auto_explain.log_format": "json", "auto_explain.log_level": "notice",
	} {
		config.ConnConfig.RuntimeParams[name] = value
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	ok(t, err)
	t.Cleanup(pool.Close)
	return pool, p
}

func (p *plans) note(message string) {
	_, text, isPlan := strings.Cut(message, "plan:\n")
	if !isPlan {
		return
	}
	var s statementPlan
	err := json.Unmarshal([]byte(text), &s)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.errs = append(p.errs, fmt.Errorf("plan %s: %w", text, err))
		return
	}
	p.seen = append(p.seen, s)
}

// largeTables are those that grow with the number of messages.
var largeTables = []string{"message", "body", "strict_group", "turn", "back", "dedup", "inbox", "tally", "slot"}

// wholeScans returns the nodes of a plan that read a large table, or an index of it, from end
// to end, or that read another index than that of the key although the key is known.
func (n planNode) wholeScans() (found []planNode) {
	if slices.Contains(largeTables, n.Relation) && strings.HasSuffix(n.Type, "Scan") && (n.IndexCond == "" || strings.Contains(n.Filter, "(seq = ")) {
		found = append(found, n)
	}
	for _, child := range n.Plans {
		found = append(found, child.wholeScans()...)
	}
	return found
}

// indexes adds how a plan uses indexes: their names with the conditions.
func (n planNode) indexes(used map[string]string) {
	if n.Index != "" {
		used[n.Index] += n.IndexCond + " "
	}
	for _, child := range n.Plans {
		child.indexes(used)
	}
}

// check fails if a statement reads a whole table, and returns how indexes were used.
func (p *plans) check(t *testing.T) (used map[string]string) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, err := range p.errs {
		t.Error(err)
	}
	used = make(map[string]string)
	for _, s := range p.seen {
		for _, n := range s.Plan.wholeScans() {
			t.Errorf("%s on %s (index %q) without a condition, or beside the key (filter %s), in: %.400s", n.Type, n.Relation, n.Index, n.Filter, s.Query)
		}
		s.Plan.indexes(used)
	}
	return used
}

// expect fails if no statement that was run has a text, of the short ways of calls, and of what follows messages that come back.
func (p *plans) expect(t *testing.T, texts ...string) {
	t.Helper()
	for _, text := range texts {
		_, text, _ = strings.Cut("."+text, "mailbox.")
		if !slices.ContainsFunc(p.seen, func(s statementPlan) bool { return strings.Contains(s.Query, text) }) {
			t.Errorf("no statement with %q was run", text)
		}
	}
}

// formerFunctions are those that only processes of earlier versions call, each with the types of its arguments as far as others have its name.
var formerFunctions = []string{
	"ack_tx(", "nack_tx(", "send_tx(", "regroup(integer,integer,bytea)",
}

// expectCalled fails if a function that has statements was not called, so that nothing is known of their plans.
func expectCalled(t *testing.T, pool *pgxpool.Pool, schema string) {
	t.Helper()
	for open := 1; open > 0; {
		ok(t, pool.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity CROSS JOIN pg_sleep(0.01) WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()", pgx.QueryExecModeExec).Scan(&open))
	}
	rows, err := pool.Query(t.Context(), `SELECT substring(p.oid::regprocedure::text FROM '[.](.*)') FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang LEFT JOIN pg_stat_user_functions f ON f.funcid = p.oid
		WHERE p.pronamespace = $1::text::regnamespace AND l.lanname = 'plpgsql' AND f.funcid IS NULL`, pgx.QueryExecModeExec, schema)
	ok(t, err)
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	ok(t, err)
	for _, name := range names {
		if !slices.ContainsFunc(formerFunctions, func(former string) bool { return strings.HasPrefix(name, former) }) {
			t.Errorf("no operation calls %s", name)
		}
	}
}

// TestNoStatementReadsWholeTables runs every operation and looks at the plans of all statements in
// the functions: while the tables have never been analysed, while statistics say that they are
// empty, and with statistics of many messages.
func TestNoStatementReadsWholeTables(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, "fsync=off", "autovacuum=off", "track_functions=all")
	for _, test := range []struct {
		name    string
		prepare func(t *testing.T, pool *pgxpool.Pool, schema string)
	}{
		{"without statistics", func(*testing.T, *pgxpool.Pool, string) {}},
		{"statistics of empty tables, which fill", func(t *testing.T, pool *pgxpool.Pool, schema string) {
			analyse(t, pool, schema)
			fill(t, pool, schema)
		}},
		{"statistics of full tables", func(t *testing.T, pool *pgxpool.Pool, schema string) {
			fill(t, pool, schema)
			analyse(t, pool, schema)
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			schema := pgtest.Schema()
			plain := server.Pool(t)
			ok(t, Migrate(t.Context(), plain, schema))
			test.prepare(t, plain, schema)
			pool, seen := explained(t, server)
			b, err := Open(t.Context(), pool, &Options{Schema: schema, PollOnly: true})
			ok(t, err)
			for name, config := range map[string]driver.Config{
				"plain":  {},
				"strict": {StrictGroups: true, Shards: 2},
				"fair":   {FairGroups: true, GroupLimits: "in-flight=100,rate=1000; group: rate=900"},
				"ruled": {
					MaxMessages: 1000, MaxBytes: 1 << 20, MaxInFlight: 100, MaxDead: 100, DeadLetterTo: "plain",
					RetainReady: driver.Retention{Age: time.Hour, Count: 500}, RetainDead: driver.Retention{Age: time.Hour, Count: 50},
				},
			} {
				ok(t, b.ConfigureQueue(t.Context(), name, config))
				operate(t, b, name)
			}
			if used := seen.check(t); used["message_ends"] != "" || strings.Contains(used["message_unique"], "unique_key") { // Usage counts by queue
				t.Errorf("queues without times to live and unique keys look for them: %s, %s", used["message_ends"], used["message_unique"])
			}
			for _, name := range []string{"strict", "ruled"} {
				operateOnLives(t, b, name)
			}
			operateOnShortWays(t, b, "short")
			operateOnLateCalls(t, b, "late")
			operateOnLimits(t, b, "fair")
			operateOnLevels(t, b, "ruled")
			operateOnKeys(t, b, "ruled")
			ok(t, b.DeleteQueue(t.Context(), "ruled"))
			operateReplies(t, b.Replies(0))
			ok(t, b.Close())
			used := seen.check(t)
			seen.expect(t, "FROM leased l CROSS JOIN LATERAL", "mailbox.nonce_of(", "DELETE FROM mailbox.body b WHERE b.seq = ANY (ARRAY(SELECT g.seq FROM gone g))", "max(r.high) OVER", "greatest(u.low, p_upto")
			pool.Close() // sessions tell what they have called at the latest when they end
			expectCalled(t, plain, schema)
			for index, condition := range map[string]string{
				"message_sent": "place >", "message_back": "place >=", "message_due": "due >", "message_age": "qid =", "message_dead": "qid =",
				"message_dead_id": "id =", "message_group": "grp =", "message_blocker": "grp =", "message_pkey": "seq =", "body_pkey": "seq =",
				"message_ends": "ends >", "message_level": "priority =", "message_level_age": "qid =", "message_unique": "unique_key =", "dedup_pkey": "key =", "dedup_ends": "ends <=", "strict_group_turn": "qid =", "strict_group_pkey": "name =", "strict_group_wakes": "wakes >", "strict_group_over": "qid =",
				"strict_group_until": "until >", "strict_group_idle": "version >", "turn_pkey": "qid =", "back_pkey": "qid =", "group_limit_pkey": "name =", "inbox_xid": "xid >=",
				"tally_pkey": "slot =", "slot_pkey": "id =", "slot_expires": "expires <=",
			} {
				if index == "slot_expires" && !strings.Contains(used[index], "expires >= ") {
					t.Errorf("no list of slots uses %s; conditions: %q", index, used[index])
				}
				if !strings.Contains(used[index], condition) {
					t.Errorf("no statement uses index %s with %q; conditions: %q", index, condition, used[index])
				}
			}
		})
	}
}

func analyse(t *testing.T, pool *pgxpool.Pool, schema string) {
	t.Helper()
	for _, table := range largeTables {
		_, err := pool.Exec(t.Context(), "ANALYZE "+schema+"."+table)
		ok(t, err)
	}
}

// fill makes many messages of another queue.
func fill(t *testing.T, pool *pgxpool.Pool, schema string) {
	t.Helper()
	const rows = "generate_series(1, 20000) n"
	statement := strings.ReplaceAll("INSERT INTO mailbox.body (seq, sent_at, body) SELECT -n, n, 'body' FROM "+rows+"; "+
		"INSERT INTO mailbox.message (seq, qid, shard, state, place, arrived, born, due, size, id, grp, ttl, ends, priority) "+
		"SELECT -n, 1000, 0, (ARRAY['r', 'b', 's', 'd', 'w', 'f', 'x', 'p', 'h'])[1 + n % 9]::\"char\", -n, -n, n, n, 4, lpad(n::text, 32, '0')::uuid, "+
		"CASE WHEN n % 9 IN (2, 4) THEN 'group'::bytea END, 1, n, 1 + n % 5 FROM "+rows+"; "+
		"INSERT INTO mailbox.dedup SELECT 1000, n::text::bytea, '', lpad(n::text, 32, '0')::uuid, n FROM "+rows+"; "+
		"INSERT INTO mailbox.strict_group SELECT 1000, 0, n::text::bytea, n FROM "+rows+"; "+
		"INSERT INTO mailbox.turn SELECT 1000, 0, n, '{0}', '{0}', 0 FROM "+rows+"; "+
		"INSERT INTO mailbox.back SELECT 1000, 0, n, '{0}', '{0}', '{0}' FROM "+rows+"; "+
		"INSERT INTO mailbox.inbox (qid, shard, kind) SELECT 1000, 0, 'g' FROM "+rows+"; "+
		"INSERT INTO mailbox.tally SELECT 1000, 0, 0, n, 0, 0, 0, 0, 0 FROM "+rows+"; "+
		"INSERT INTO mailbox.slot (id, created, expires) SELECT 'slot ' || n, n, 9000000000000000 + n FROM "+rows, "mailbox.", schema+".")
	_, err := pool.Exec(t.Context(), statement, pgx.QueryExecModeSimpleProtocol)
	ok(t, err)
}
