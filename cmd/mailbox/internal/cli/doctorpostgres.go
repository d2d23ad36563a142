package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mailboxmq/mailbox/internal/checkup"
	"github.com/mailboxmq/mailbox/pgbox"
)

func (s *shell) postgresDoctorCommand() *cobra.Command {
	return &cobra.Command{
		Use: "doctor [URL]", Short: "Find out what is wrong with a database",
		Long: "Check, one after the other, the version of the server, the tables, durability, settings, standbys, transactions that are held open, and rows that\n" +
			"are gone and still take room; and say what to do. Nothing is changed. Without a URL the database is that of MAILBOXD_BACKEND. The exit code is 1 if something is wrong.",
		Example: "mailbox pg doctor 'postgres://shop@127.0.0.1:5432/shop?schema=mailbox'",
		Args:    wants(0, 1),
		RunE: s.run(func(ctx context.Context, args []string) error {
			address, err := s.database(args)
			if err != nil {
				return err
			}
			found, err := pgbox.Examine(ctx, address)
			if err != nil {
				return offline(err)
			}
			d := &doctor{shell: s}
			d.checkPostgres(found)
			return d.print()
		}),
	}
}

// checkPostgres judges a database.
func (d *doctor) checkPostgres(c *pgbox.Condition) {
	if c.Supported {
		d.add("server", statusOK, "", "PostgreSQL %s", c.Version)
	} else {
		d.add("server", statusFail, "use PostgreSQL 13 or later", "PostgreSQL %s is too old", c.Version)
	}
	if c.Migrations < c.WantedMigrations {
		d.add("tables", statusFail, "run mailbox pg migrate, or start a daemon whose role may", "the schema has %d of %d migrations", c.Migrations, c.WantedMigrations)
	} else {
		d.add("tables", statusOK, "", "the tables are up to date")
	}
	d.checkPostgresSettings(c.Settings)
	d.checkStandbys(c)
	d.checkHeld(c)
	d.checkBloat(c.Tables)
}

func (d *doctor) checkPostgresSettings(settings map[string]string) {
	switch {
	case settings["fsync"] != "on":
		d.add("durability", statusWarn, "set fsync = on in postgresql.conf", "messages do not survive a crash of the machine (fsync %s)", settings["fsync"])
	case settings["full_page_writes"] != "on":
		d.add("durability", statusWarn, "set full_page_writes = on in postgresql.conf, unless the file system writes whole pages", "a power cut can damage tables (full_page_writes %s)", settings["full_page_writes"])
	default:
		d.add("durability", statusOK, "", "commits wait for the disk")
	}
	before := len(d.findings)
	if level := settings["default_transaction_isolation"]; level != "read committed" {
		d.add("settings", statusFail, "set default_transaction_isolation to read committed for the role", "default_transaction_isolation is %s", level)
	}
	if settings["transaction_read_only"] != "off" {
		d.add("settings", statusFail, "name all servers in the URL, with target_session_attrs=read-write", "the server is read-only")
	}
	if settings["synchronous_commit"] == "off" {
		d.add("settings", statusWarn, "set synchronous_commit to on for the role", "synchronous_commit is off: messages are safe, but SendTx and AckTx are refused")
	}
	if settings["autovacuum"] != "on" {
		d.add("settings", statusWarn, "set autovacuum = on in postgresql.conf", "autovacuum is %s: tables grow without end", settings["autovacuum"])
	}
	if len(d.findings) == before {
		d.add("settings", statusOK, "", "isolation, synchronous_commit and autovacuum are as they should be")
	}
}

func (d *doctor) checkStandbys(c *pgbox.Condition) {
	const check = "standbys"
	names := c.Settings["synchronous_standby_names"]
	var synchronous, hidden int
	for _, s := range c.Standbys {
		switch s.Sync {
		case "":
			hidden++
		case "sync", "quorum":
			synchronous++
		}
	}
	switch {
	case hidden > 0:
		d.add(check, statusSkip, "GRANT pg_monitor TO the role", "the role may not see the state of %s", plural(hidden, "standby"))
	case names != "" && synchronous == 0:
		d.add(check, statusFail, "start the standby: until then sends and acks wait", "synchronous_standby_names is %q, and no synchronous standby is connected", names)
	case synchronous > 0:
		d.add(check, statusOK, "", "%s: a failover loses nothing that was confirmed", plural(synchronous, "synchronous standby"))
	case len(c.Standbys) > 0:
		d.add(check, statusWarn, "set synchronous_standby_names, unless that may be lost", "%s, none synchronous: a failover loses the latest messages", plural(len(c.Standbys), "standby"))
	default:
		d.add(check, statusOK, "", "the server has no standby: messages are as safe as the disk of the server")
	}
}

// heldWarning is the age from which an open transaction is worth a warning.
const heldWarning = time.Minute

func (d *doctor) checkHeld(c *pgbox.Condition) {
	var held []string
	for _, x := range c.Transactions {
		switch {
		case x.Age < heldWarning:
		case x.Session == 0:
			held = append(held, fmt.Sprintf("prepared transaction %q for %v", x.Application, x.Age.Round(time.Second)))
		default:
			held = append(held, fmt.Sprintf("session %d (%q, %s) for %v", x.Session, x.Application, x.State, x.Age.Round(time.Second)))
		}
	}
	switch {
	case len(held) > 0:
		d.add("held", statusWarn, "end them, and set idle_in_transaction_session_timeout: the server cannot remove rows that have gone since", "transactions are held open: %s", strings.Join(held, ", "))
	case c.HiddenSessions > 0:
		d.add("held", statusSkip, "GRANT pg_monitor TO the role", "the role may not see the transactions of %s", plural(c.HiddenSessions, "session"))
	default:
		d.add("held", statusOK, "", "no transaction is held open")
	}
}

// A table is bloated if it has this many rows that are gone, and more of them than others.
const bloatedRows = 100_000

func (d *doctor) checkBloat(tables []pgbox.Table) {
	bytes := int64(0)
	var bloated []string
	for _, t := range tables {
		bytes += t.Bytes
		if t.Dead >= bloatedRows && t.Dead > t.Live {
			bloated = append(bloated, fmt.Sprintf("%s (%d gone, %d there)", t.Name, t.Dead, t.Live))
		}
	}
	if len(bloated) > 0 {
		d.add("bloat", statusWarn, "see above which transactions are held; then VACUUM the tables", "tables are full of rows that are gone: %s", strings.Join(bloated, ", "))
		return
	}
	d.add("bloat", statusOK, "", "the tables take %s", checkup.Bytes(uint64(bytes)))
}
