package pgbox

import (
	"context"
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

// TestNoStatementReadsWholeTables runs every operation and looks at the plans of all statements in
// the functions: while the tables have never been analysed, while statistics say that they are
// empty, and with statistics of many messages.
func TestNoStatementReadsWholeTables(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, "fsync=off", "autovacuum=off")
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
			operateOnLimits(t, b, "fair")
			operateOnLevels(t, b, "ruled")
			operateOnKeys(t, b, "ruled")
			ok(t, b.DeleteQueue(t.Context(), "ruled"))
			operateReplies(t, b.Replies(0))
			ok(t, b.Close())
			used := seen.check(t)
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

// operate makes every call on a queue that runs a function.
func operate(t *testing.T, b *Backend, name string) {
	t.Helper()
	ctx := t.Context()
	q, err := b.OpenQueue(ctx, name)
	ok(t, err)
	send := func(msgs ...driver.Outgoing) []driver.Sent {
		sent, err := q.Send(ctx, msgs)
		ok(t, err)
		return sent
	}
	take := func() driver.Delivery {
		_, got := receiveBodies(t, q, 1)
		return got[0]
	}
	send(outgoing("a", "b", "c", "d", "e", "f", "g", "h")...)
	send(driver.Outgoing{Body: []byte("keyed"), DedupKey: "key", Group: "group"}, driver.Outgoing{Body: []byte("late"), Delay: time.Hour})
	for range 2 {
		ok(t, q.Nack(ctx, []driver.Nack{{Receipt: take().Receipt}}))
	}
	held := take()
	_, err = q.Extend(ctx, []driver.Extension{{Receipt: held.Receipt, Visibility: hold}})
	ok(t, err)
	ok(t, q.Ack(ctx, []driver.Receipt{held.Receipt}))
	ok(t, q.DeadLetter(ctx, []driver.DeadLetterRequest{{Receipt: take().Receipt, Reason: driver.ReasonFatal}}))
	_, err = q.Redrive(ctx, nil, 0)
	ok(t, err)
	dead := take()
	ok(t, q.DeadLetter(ctx, []driver.DeadLetterRequest{{Receipt: dead.Receipt, Reason: driver.ReasonFatal}}))
	_, err = q.Discard(ctx, []string{dead.ID})
	ok(t, err)
	_, err = q.Usage(ctx)
	ok(t, err)
	_, err = q.Edit(ctx, send(driver.Outgoing{Body: []byte("edited")})[0].ID, driver.Edit{DeliverAt: time.Now().Add(time.Hour)})
	ok(t, err)
	_, _, err = q.Fire(ctx, driver.Firing{Name: "hourly", Definition: []byte("d"), Messages: []driver.DueMessage{{Outgoing: driver.Outgoing{Body: []byte("due")}}}})
	ok(t, err)
	for _, err := range q.Schedules(ctx, "") {
		ok(t, err)
	}
	operateInTx(t, b, q)
	ok(t, b.ConfigureQueue(ctx, "target", driver.Config{}))
	_, err = q.Move(ctx, "target", 0)
	ok(t, err)
	_, err = q.Purge(ctx)
	ok(t, err)
	_, err = q.PurgeDead(ctx)
	ok(t, err)
	ok(t, q.Close())
}

// operateOnLives sends a message with a time to live, and makes the calls that look for its end.
func operateOnLives(t *testing.T, b *Backend, name string) {
	t.Helper()
	ctx := t.Context()
	q, err := b.OpenQueue(ctx, name)
	ok(t, err)
	_, err = q.Send(ctx, []driver.Outgoing{{Body: []byte("short"), TTL: time.Microsecond}, {Body: []byte("long"), TTL: time.Hour}})
	ok(t, err)
	got, err := q.Receive(ctx, driver.ReceiveRequest{Max: 1, Visibility: hold, Wait: time.Minute})
	ok(t, err)
	ok(t, q.Nack(ctx, []driver.Nack{{Receipt: got[0].Receipt, Delay: time.Minute}}))
	_, err = q.Usage(ctx)
	ok(t, err)
	ok(t, q.Close())
}

// operateOnLimits makes the calls that look for limits of groups.
func operateOnLimits(t *testing.T, b *Backend, name string) {
	t.Helper()
	ctx := t.Context()
	q, err := b.OpenQueue(ctx, name)
	ok(t, err)
	sendTo(t, q, "group", "a", "b")
	ok(t, q.Throttle(ctx, "group", 10*time.Millisecond))
	_, err = q.Stats(ctx)
	ok(t, err)
	_, got := receiveBodies(t, q, 1)
	ok(t, q.Nack(ctx, []driver.Nack{{Receipt: got[0].Receipt, Mode: driver.NackRelease}}))
	ok(t, b.ConfigureQueue(ctx, name, driver.Config{FairGroups: true, GroupLimits: "rate=1"}))
	ok(t, q.Throttle(ctx, "group", time.Minute))
	_, err = q.Purge(ctx)
	ok(t, err)
	ok(t, q.Close())
}

// operateOnLevels makes the calls that look for messages with priorities.
func operateOnLevels(t *testing.T, b *Backend, name string) {
	t.Helper()
	ctx := t.Context()
	q, err := b.OpenQueue(ctx, name)
	ok(t, err)
	sent, err := q.Send(ctx, []driver.Outgoing{{Body: []byte("high"), Priority: 9}, {Body: []byte("low"), Priority: 1}, {Body: []byte("plain")}})
	ok(t, err)
	_, got := receiveBodies(t, q, 2)
	ok(t, q.Nack(ctx, []driver.Nack{{Receipt: got[0].Receipt}}))
	_, err = q.Edit(ctx, sent[2].ID, driver.Edit{Prioritize: true, Priority: 5})
	ok(t, err)
	for _, err := range q.Peek(ctx, driver.Query{}) {
		ok(t, err)
	}
	_, err = q.Usage(ctx)
	ok(t, err)
	_, err = q.Move(ctx, "target", 0)
	ok(t, err)
	ok(t, q.Close())
}

// operateOnKeys makes the calls that look for messages with unique keys.
func operateOnKeys(t *testing.T, b *Backend, name string) {
	t.Helper()
	ctx := t.Context()
	q, err := b.OpenQueue(ctx, name)
	ok(t, err)
	_, err = q.Purge(ctx)
	ok(t, err)
	sendOne(t, q, unique("k", "first"))
	sendOne(t, q, replacing("k", "replaces"))
	target, err := b.OpenQueue(ctx, "target")
	ok(t, err)
	_, err = target.Purge(ctx)
	ok(t, err)
	sendOne(t, target, unique("k", "holds"))
	deadLetter(t, target)
	holder := sendOne(t, target, unique("k", "holds again")).ID
	_, err = target.Redrive(ctx, nil, 0)
	wantHolder(t, err, holder)
	_, err = q.Move(ctx, "target", 0)
	wantHolder(t, err, holder)
	deadLetter(t, q)
	tx := begin(t, b)
	_, err = q.Send(InTx(ctx, tx), []driver.Outgoing{unique("k", "a"), replacing("k", "b")})
	ok(t, err)
	ok(t, tx.Commit(ctx))
	collect(t, q)
	ok(t, target.Close())
	ok(t, q.Close())
}

// operateReplies makes every call of a reply store.
func operateReplies(t *testing.T, r driver.ReplyStore) {
	t.Helper()
	ctx := t.Context()
	for _, id := range []string{"one", "two"} {
		ok(t, r.Create(ctx, id, time.Hour))
	}
	ok(t, r.Resolve(ctx, "one", driver.Answer{Body: []byte("answer")}))
	ok(t, r.Cancel(ctx, "two"))
	_, err := r.Get(ctx, "one")
	ok(t, err)
	_, err = r.Consume(ctx, "one")
	ok(t, err)
	ok(t, r.Delete(ctx, "two"))
	_, err = r.Expired(ctx, 10)
	ok(t, err)
	_, err = r.Sweep(ctx, 10)
	ok(t, err)
	for _, err := range r.(driver.SlotLister).Slots(ctx) {
		ok(t, err)
	}
}

// operateInTx makes the calls that can be part of a transaction, and lets another move what they
// have done.
func operateInTx(t *testing.T, b *Backend, q driver.Queue) {
	t.Helper()
	got, err := q.Receive(t.Context(), driver.ReceiveRequest{Max: 2, Visibility: hold})
	ok(t, err)
	tx := begin(t, b)
	ctx := InTx(t.Context(), tx)
	_, err = q.Send(ctx, outgoing("in a transaction"))
	ok(t, err)
	for i, d := range got {
		if i == 0 {
			ok(t, q.Ack(ctx, []driver.Receipt{d.Receipt}))
		} else {
			ok(t, q.Nack(ctx, []driver.Nack{{Receipt: d.Receipt}}))
		}
	}
	ok(t, tx.Commit(context.WithoutCancel(ctx)))
	last, err := q.Receive(t.Context(), driver.ReceiveRequest{Max: 100, Visibility: hold, Wait: time.Minute})
	ok(t, err)
	if len(last) == 0 {
		t.Fatal("received nothing")
	}
}
