package cli

import (
	"cmp"
	"context"

	"github.com/spf13/cobra"

	"github.com/mailboxmq/mailbox/pgbox"
)

func (s *shell) postgresCommand() *cobra.Command {
	return parent("pg", "Manage the tables of a backend in PostgreSQL", s.migrateCommand(), s.postgresDoctorCommand())
}

func (s *shell) migrateCommand() *cobra.Command {
	var dryRun bool
	c := &cobra.Command{
		Use: "migrate [URL]", Short: "Bring the tables in a database up to date",
		Long: "Create the tables and functions of queues in a database, or bring them up to date. A daemon does so when it starts, if its role may.\n" +
			"Without a URL the database is that of MAILBOXD_BACKEND. With --dry-run the missing statements are printed, and nothing is changed.",
		Example: "mailbox pg migrate --dry-run 'postgres://owner@127.0.0.1:5432/shop?schema=mailbox'\nMAILBOXD_BACKEND=postgres://owner:secret@127.0.0.1:5432/shop mailbox pg migrate",
		Args:    wants(0, 1),
		RunE: s.run(func(ctx context.Context, args []string) error {
			address, err := s.database(args)
			if err != nil {
				return err
			}
			return s.migrate(ctx, address, dryRun)
		}),
	}
	c.Flags().BoolVar(&dryRun, "dry-run", false, "print the missing statements, and change nothing")
	return c
}

// database returns the URL of the arguments, or that of the environment.
func (s *shell) database(args []string) (string, error) {
	if len(args) > 0 {
		return args[0], nil
	}
	if address := s.environ["MAILBOXD_BACKEND"]; address != "" {
		return address, nil
	}
	return "", usageError("URL is missing; want postgres://USER@HOST:PORT/DATABASE, or MAILBOXD_BACKEND in the environment")
}

// migrateView is the result of mailbox pg migrate in JSON.
type migrateView struct {
	Changed bool   `json:"changed"`
	SQL     string `json:"sql,omitempty"`
}

func (s *shell) migrate(ctx context.Context, address string, dryRun bool) error {
	statements, err := pgbox.MigrationSQL(ctx, address)
	if err != nil {
		return offline(err)
	}
	if dryRun {
		return s.say(migrateView{SQL: statements}, "%s", cmp.Or(statements, "-- The tables are up to date."))
	}
	backend, err := pgbox.OpenAddress(ctx, address, nil)
	if err != nil {
		return offline(err)
	}
	if err := backend.Close(); err != nil {
		return offline(err)
	}
	if statements == "" {
		return s.say(migrateView{}, "The tables were up to date.")
	}
	return s.say(migrateView{Changed: true}, "The tables are up to date now.")
}
