package pgbox

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/driver/drivertest"
	"github.com/mailboxmq/mailbox/internal/testing/pgtest"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// tick is long enough for a call on a machine that is busy with other tests.
const tick = 300 * time.Millisecond

// A place is a backend under test, and where it has its queues.
type place struct {
	*Backend
	pool   *pgxpool.Pool
	schema string
}

// open opens a backend in a schema.
func open(t testing.TB, pool *pgxpool.Pool, options *Options) *Backend {
	t.Helper()
	options.Migrate = true
	b, err := Open(t.Context(), pool, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = b.Close()
		checkCounts(t, pool, b.options.Schema)
	})
	return b
}

// empty empties the tables of a schema, which is much faster than making another one.
func empty(t testing.TB, pool *pgxpool.Pool, schema string) {
	t.Helper()
	if err := Migrate(t.Context(), pool, schema); err != nil {
		t.Fatal(err)
	}
	statement := strings.ReplaceAll("DELETE FROM mailbox.queue; DELETE FROM mailbox.message; DELETE FROM mailbox.body; DELETE FROM mailbox.strict_group; DELETE FROM mailbox.turn; DELETE FROM mailbox.back; DELETE FROM mailbox.group_limit; DELETE FROM mailbox.dedup; DELETE FROM mailbox.inbox; DELETE FROM mailbox.schedule; DELETE FROM mailbox.tally; DELETE FROM mailbox.slot", "mailbox.", schema+".")
	if _, err := pool.Exec(t.Context(), statement, pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Fatal(err)
	}
}

// A schemaPool has schemas for tests that run beside each other, and connections to them:
// those that know the functions of a schema are much faster than new ones.
type schemaPool struct {
	connect func() *pgxpool.Pool

	mu   sync.Mutex // guards free
	free []pooledSchema
}

type pooledSchema struct {
	pool   *pgxpool.Pool
	schema string
}

// take returns an empty schema, which is the test's until it ends.
func (p *schemaPool) take(t testing.TB) pooledSchema {
	t.Helper()
	taken := p.pop()
	t.Cleanup(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.free = append(p.free, taken)
	})
	empty(t, taken.pool, taken.schema)
	return taken
}

func (p *schemaPool) pop() pooledSchema {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.free) == 0 {
		return pooledSchema{p.connect(), pgtest.Schema()}
	}
	last := len(p.free) - 1
	popped := p.free[last]
	p.free = p.free[:last]
	return popped
}

// restarts reports whether a case restarts the server.
func restarts(t testing.TB) bool { return strings.Contains(t.Name(), "/after_") }

// A setup is servers on which the suite runs.
type setup struct {
	// connect returns connections, which are closed when the test ends.
	connect func(t testing.TB) *pgxpool.Pool
	// kill crashes the server that has the queues, and starts it again.
	kill func(t testing.TB)
	// cut takes the machine away whose disk has what was synced, or is nil.
	cut      func(t testing.TB)
	pollOnly bool
	// durability is what every backend must promise.
	durability driver.Durability
}

// alone is a server that can be killed. What was written survives that without a sync.
func alone(t *testing.T) setup {
	server := pgtest.Start(t, "fsync=off")
	return setup{connect: server.Pool, kill: restarted(server), durability: driver.DurabilityProcess}
}

// restarted returns a function that kills a server and starts it again.
func restarted(server *pgtest.Server) func(testing.TB) {
	return func(t testing.TB) {
		server.Kill()
		if err := server.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// restartable is a backend on such servers.
func (s setup) restartable(t *testing.T) drivertest.Backend {
	serial, beside := pgtest.Schema(), schemaPool{connect: func() *pgxpool.Pool { return s.connect(t) }}
	begin := func(t testing.TB, pool *pgxpool.Pool, schema string) driver.Opener {
		b := open(t, pool, &Options{Schema: schema, PollOnly: s.pollOnly})
		expectDurability(t, b, s.durability)
		return &place{Backend: b, pool: pool, schema: schema}
	}
	crashes := []drivertest.Crash{drivertest.CrashClean, drivertest.CrashKill}
	if s.cut != nil {
		crashes = append(crashes, drivertest.CrashPower)
	}
	return drivertest.Backend{
		Open: func(t testing.TB) driver.Opener {
			if restarts(t) {
				pool := s.connect(t)
				empty(t, pool, serial)
				return begin(t, pool, serial)
			}
			t.(*testing.T).Parallel() // it mostly waits, and begins after the cases that restart the server
			taken := beside.take(t)
			return begin(t, taken.pool, taken.schema)
		},
		Restart: func(t testing.TB, old driver.Opener, how drivertest.Crash) driver.Opener {
			p := old.(*place)
			if err := p.Close(); err != nil {
				t.Error(err)
			}
			p.pool.Close()
			switch how {
			case drivertest.CrashKill:
				s.kill(t)
			case drivertest.CrashPower:
				s.cut(t)
			}
			return begin(t, s.connect(t), p.schema)
		},
		Crashes: crashes,
		Tick:    tick,
	}
}

// keepsItsPromises runs random programs and concurrent load, and the whole suite at length.
func (s setup) keepsItsPromises(t *testing.T) {
	t.Helper()
	backend, pool := s.restartable(t), s.connect(t)
	fresh := backend
	fresh.Open = func(t testing.TB) driver.Opener {
		return open(t, pool, &Options{Schema: pgtest.Schema(), PollOnly: s.pollOnly})
	}
	t.Run("random", func(t *testing.T) { drivertest.RunRandom(t, fresh, 200) })
	t.Run("load", func(t *testing.T) { drivertest.RunConcurrent(t, fresh, drivertest.Load{}) })
	if volume.AtLength() {
		t.Run("suite", func(t *testing.T) { drivertest.Run(t, backend) })
	}
}

func TestConformance(t *testing.T) {
	volume.Repeats(t)
	t.Parallel() // it mostly waits
	drivertest.Run(t, alone(t).restartable(t))
}

// sharing is a backend on the server that tests share.
func sharing(t *testing.T) drivertest.Backend {
	pool := pgtest.Shared(t).Pool(t)
	return drivertest.Backend{
		Open: func(t testing.TB) driver.Opener { return open(t, pool, &Options{Schema: pgtest.Schema()}) },
		Tick: tick,
	}
}

func TestAgreesWithTheModel(t *testing.T) {
	volume.Repeats(t)
	t.Parallel()
	drivertest.RunRandom(t, sharing(t), volume.Of(1_000))
}

func TestKeepsItsPromisesUnderLoad(t *testing.T) {
	volume.Repeats(t)
	t.Parallel()
	for _, test := range []struct {
		name   string
		config driver.Config
	}{
		{"defaults", driver.Config{}},
		{"strict groups", driver.Config{StrictGroups: true}},
		{"several shards of strict groups", driver.Config{Shards: 4, StrictGroups: true}},
		{"fair groups", driver.Config{FairGroups: true}},
		{"limited groups", driver.Config{FairGroups: true, Shards: 2, GroupLimits: "in-flight=3,rate=1000"}},
		{"tight bounds", driver.Config{MaxMessages: 500, MaxInFlight: 50, MaxHold: 20 * time.Second}},
		{"few deliveries", driver.Config{MaxDeliveries: 3, MaxDead: 100}},
		{"a short memory", driver.Config{DedupWindow: 5 * time.Second}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			drivertest.RunConcurrent(t, sharing(t), drivertest.Load{Config: test.config, Messages: volume.Of(1_000)})
		})
	}
}
