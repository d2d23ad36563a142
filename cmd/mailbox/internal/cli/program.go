package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"charm.land/fang/v2"
	"github.com/charmbracelet/x/term"
	"github.com/spf13/cobra"

	"github.com/mailboxmq/mailbox/driver"
)

// A Program is one run of the command line.
type Program struct {
	// Args are the arguments, without the name of the program.
	Args []string
	// Environ is the environment, in the form of os.Environ.
	Environ []string
	Stdin   io.Reader
	Stdout  io.Writer
	Stderr  io.Writer
	// Version is the output of the version command; empty means that of the build.
	Version string
}

// Run runs the command that the arguments name, and returns the exit code. It blocks until that
// is done; cancelling ctx interrupts it in an orderly way.
func (p Program) Run(ctx context.Context) int {
	s := &shell{Program: p, environ: make(map[string]string)}
	for _, entry := range p.Environ {
		name, value, _ := strings.Cut(entry, "=")
		s.environ[name] = value
	}
	root := s.root() //nolint:contextcheck // commands get the context from cobra
	root.SetArgs(p.Args)
	root.SetIn(p.Stdin)
	root.SetOut(p.Stdout)
	root.SetErr(p.Stderr)
	root.InitDefaultCompletionCmd(p.Args...)
	if c, _, err := root.Find([]string{"completion"}); err == nil && c != root {
		c.Args, c.RunE = cobra.ArbitraryArgs, runParent
	}
	err := fang.Execute(ctx, root, fang.WithVersion(s.version().Version),
		// Commands report their own errors; an error here is about how they
		// were called.
		fang.WithErrorHandler(func(_ io.Writer, _ fang.Styles, err error) { s.report(misuse(err)) }))
	if err != nil {
		return exitUsage
	}
	return s.code
}

// misuse returns the failure for an error about how a command was called.
func misuse(err error) error {
	if f, ok := errors.AsType[*failure](err); ok {
		return f
	}
	return &failure{exit: exitUsage, code: "usage", sentence: err.Error(), advice: "see mailbox --help"}
}

// A shell is a running Program, with the state that its commands share.
type shell struct {
	Program
	environ map[string]string
	global  globalFlags
	code    int
}

// The groups of commands in the help.
const (
	groupMessages = "messages"
	groupQueues   = "queues"
	groupAccess   = "access"
	groupDaemon   = "daemon"
)

func (s *shell) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "mailbox",
		Short: "Send, receive and manage messages in mailboxd",
		Long: "Send, receive and manage messages in mailboxd.\n\n" +
			"The daemon on this machine, and its operator's token, are found automatically.",
		Example: "mailbox send hello 'Good morning'\nmailbox recv hello --ack\nmailbox stats --watch",
		Args:    cobra.ArbitraryArgs, RunE: runParent,
	}
	root.SetFlagErrorFunc(s.flagError)
	root.SetHelpCommand(s.helpCommand())
	s.global.register(root.PersistentFlags())
	root.AddGroup(
		&cobra.Group{ID: groupMessages, Title: "messages"}, &cobra.Group{ID: groupQueues, Title: "queues"},
		&cobra.Group{ID: groupAccess, Title: "access"}, &cobra.Group{ID: groupDaemon, Title: "daemon"},
	)
	for _, group := range []struct {
		id       string
		commands []*cobra.Command
	}{
		{groupMessages, []*cobra.Command{s.sendCommand(), s.recvCommand(), s.ackCommand(), s.nackCommand(), s.extendCommand(), s.peekCommand(), s.traceCommand(), s.messageCommand()}},
		{groupQueues, []*cobra.Command{s.queuesCommand(), s.statsCommand(), s.topCommand(), s.workersCommand(), s.pauseCommand(), s.resumeCommand(), s.throttleCommand(), s.schedulesCommand(), s.requestsCommand(), s.dlqCommand(), s.jobsCommand(), s.copyCommand()}},
		{groupAccess, []*cobra.Command{s.capCommand(), s.keysCommand(), s.auditCommand()}},
		{groupDaemon, []*cobra.Command{
			s.doctorCommand(), s.healthCommand(), s.consoleCommand(), s.backupCommand(), s.restoreCommand(), s.checkCommand(), s.dumpCommand(), s.repairCommand(),
			s.postgresCommand(), s.benchCommand(), s.versionCommand(),
		}},
	} {
		for _, command := range group.commands {
			command.GroupID = group.id
			root.AddCommand(command)
		}
	}
	return root
}

// run returns the RunE of a command. It reports errors, which become the exit
// code, so that cobra has none to print.
func (s *shell) run(do func(ctx context.Context, args []string) error) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, args []string) error {
		if err := do(c.Context(), args); err != nil {
			s.code = s.report(s.nameQueue(c.Context(), err))
		}
		return nil
	}
}

// wants checks the number of arguments and the name of a queue among them; its error shows
// the usage. A most below 0 means any number.
func wants(least, most int) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) >= least && (most < 0 || len(args) <= most) {
			return checkQueueArgs(c, args)
		}
		return &failure{
			exit: exitUsage, code: "usage", sentence: "usage: " + strings.TrimSuffix(c.UseLine(), " [flags]"),
			advice: fmt.Sprintf("see %s --help", c.CommandPath()),
		}
	}
}

// checkQueueArgs checks the arguments that c calls QUEUE.
func checkQueueArgs(c *cobra.Command, args []string) error {
	for i, word := range strings.Fields(c.Use)[1:] {
		if i >= len(args) || !strings.Contains(word, "QUEUE") {
			continue
		}
		if err := driver.CheckName(args[i]); err != nil {
			return usageError("QUEUE: invalid name %.60q: it %s", args[i], explainedDetail(err))
		}
	}
	return nil
}

// explainedDetail returns the detail of an error of package driver.
func explainedDetail(err error) string {
	if e, ok := errors.AsType[*driver.Error](err); ok {
		return e.Detail
	}
	return err.Error()
}

// parent returns a command that only has subcommands.
func parent(use, short string, children ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short, RunE: runParent}
	c.AddCommand(children...)
	return c
}

// runParent is the RunE of a command that only has subcommands.
func runParent(c *cobra.Command, args []string) error {
	if len(args) > 0 {
		return unknownCommand(c, args[0])
	}
	return c.Help()
}

// isTerminal reports whether a stream is a terminal.
func isTerminal(stream any) bool {
	file, ok := stream.(*os.File)
	return ok && term.IsTerminal(file.Fd())
}

// note writes a remark that is not the result: only at a terminal, and
// never with --json.
func (s *shell) note(format string, args ...any) {
	if isTerminal(s.Stderr) && !s.global.json {
		s.tell(format+"\n", args...)
	}
}

// tell writes to standard error, and ignores errors of that.
func (s *shell) tell(format string, args ...any) { _, _ = fmt.Fprintf(s.Stderr, format, args...) }
