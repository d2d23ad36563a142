package pgbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/backoff"
)

// A protection is what the server does for a message before it confirms it.
type protection struct {
	durability driver.Durability
	// problem says why messages are on one machine alone; empty if they are not.
	problem string
	// lost: a standby is asked for, or was there, and is not.
	lost bool
}

// protectionInterval is how often the standbys are looked at.
const protectionInterval = 5 * time.Second

// protectionSQL reads the settings of the role, and the standbys that commits wait for. Without
// the rights of pg_monitor the latter cannot be seen.
const protectionSQL = "SELECT current_setting('fsync'), current_setting('synchronous_commit'), current_setting('synchronous_standby_names'), " +
	"pg_has_role('pg_read_all_stats', 'USAGE'), " +
	"(SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming' AND sync_state IN ('sync', 'quorum')), current_setting('client_min_messages')"

// protect finds out what protects messages now.
func (b *Backend) protect(ctx context.Context) error {
	var fsync, commit, names, messages string
	var seen bool
	var standbys int
	err := b.attempt(ctx, request{sql: protectionSQL}, one(&fsync, &commit, &names, &seen, &standbys, &messages))
	p := protection{durability: driver.DurabilityDisk}
	switch {
	case err != nil:
		p.problem = "the standbys cannot be looked at: the server does not answer"
	case fsync != "on":
		p.durability = driver.DurabilityProcess
		p.problem = "fsync is off: messages do not survive a crash of the server's machine"
	case names == "":
		p.problem = "synchronous_standby_names is empty: commits wait for no standby, and a failover can lose confirmed messages"
	case !seen:
		p.problem = "the role may not see the standbys: GRANT pg_monitor to it"
	case commit == "local" || commit == "remote_write":
		p.problem = fmt.Sprintf("synchronous_commit is %s: commits do not wait for the disk of a standby", commit)
	case !b.heeds:
		p.problem = "the pool does not heed the warning of a commit that stopped waiting for its standby: call pgbox.HeedWarnings with its configuration"
	case messages == "error":
		p.problem = "client_min_messages is error: the warning of a commit that stopped waiting for its standby is not sent"
	case standbys == 0:
		p.problem, p.lost = "no synchronous standby is connected: commits wait for one", true
	default:
		p.durability = driver.DurabilityReplicated
	}
	before := b.protection.Load()
	p.lost = p.lost || p.problem != "" && before != nil && (before.lost || before.durability == driver.DurabilityReplicated)
	b.protection.Store(&p)
	if before == nil && p.durability == driver.DurabilityProcess || before != nil && p.problem != before.problem && p.lost {
		b.options.Logger.WarnContext(ctx, "messages are protected less than they could be", "problem", p.problem)
	}
	return err
}

// keepProtected looks at the standbys until the backend is closed.
func (b *Backend) keepProtected() {
	for backoff.Pause(b.ctx, protectionInterval) == nil {
		_ = b.protect(b.ctx) // it is noted as a problem
	}
}

// Replication says why messages are not on the disk of a synchronous standby when they are
// confirmed, or nothing if they are. lost says that they were, or should be. It does no I/O; the answer is a
// few seconds old at most.
func (b *Backend) Replication() (problem string, lost bool) {
	p := b.protection.Load()
	return p.problem, p.lost
}

// A server whose session is cancelled while it waits for a standby commits all the same, and
// answers with success and a warning. Connections whose warnings are heeded remember it.
const (
	unreplicatedKey     = "mailbox: a commit was not replicated"
	unreplicatedRoutine = "SyncRepWaitForLSN"
)

// errUnreplicated is the outcome of such a commit: it may be lost by a failover.
var errUnreplicated = errors.New("the server stopped waiting for its standby; the outcome is unknown")

// HeedWarnings makes the connections of a pool that will have this configuration remember that a commit was not
// replicated. A backend on another pool cannot tell, and so Traits say disk. OpenAddress does it for its own
// pool. It goes around an OnNotice that is set before.
func HeedWarnings(config *pgxpool.Config) {
	next := config.ConnConfig.OnNotice
	config.ConnConfig.OnNotice = func(conn *pgconn.PgConn, notice *pgconn.Notice) {
		if notice.Routine == unreplicatedRoutine {
			conn.CustomData()[unreplicatedKey] = true
		}
		if next != nil && notice != probe {
			next(conn, notice)
		}
	}
}

// probe is a warning that no server sent.
var probe = &pgconn.Notice{Severity: "DEBUG", Message: "mailbox looks whether warnings are heeded", Routine: unreplicatedRoutine}

// checkWarnings finds out whether the pool heeds warnings. An OnNotice of the caller that is in the way must pass them on.
func (b *Backend) checkWarnings(ctx context.Context) error {
	conn, err := b.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	if hear := conn.Conn().Config().OnNotice; hear != nil {
		hear(conn.Conn().PgConn(), probe)
		b.heeds = checkReplicated(conn.Conn().PgConn()) != nil
	}
	return nil
}

// checkReplicated returns an error if the last commit on a connection was not replicated.
func checkReplicated(conn *pgconn.PgConn) error {
	if conn.CustomData()[unreplicatedKey] == nil {
		return nil
	}
	delete(conn.CustomData(), unreplicatedKey)
	return errUnreplicated
}
