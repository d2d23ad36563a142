package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/mailboxmq/mailbox/internal/spelling"
)

// unknownCommand returns the error about a word that is not a subcommand of c.
func unknownCommand(c *cobra.Command, word string) error {
	var words []string
	names := make(map[string]string)
	for _, child := range c.Commands() {
		if !child.IsAvailableCommand() {
			continue
		}
		for _, name := range slices.Concat([]string{child.Name()}, child.Aliases, child.SuggestFor) {
			words, names[name] = append(words, name), child.Name()
		}
	}
	f := &failure{
		exit: exitUsage, code: "usage", sentence: fmt.Sprintf("%s has no command %q", c.CommandPath(), word),
		advice: fmt.Sprintf("see %s --help", c.CommandPath()),
	}
	if !c.HasParent() {
		f.sentence = fmt.Sprintf("unknown command %q", word)
	}
	if near := spelling.Nearest(word, words); near != "" {
		f.advice = fmt.Sprintf("did you mean %s %s?", c.CommandPath(), names[near])
	}
	return f
}

// flagError explains an error in the flags of a command.
func (s *shell) flagError(c *cobra.Command, err error) error {
	f := &failure{exit: exitUsage, code: "usage", sentence: err.Error(), advice: fmt.Sprintf("see %s --help", c.CommandPath())}
	group := "" // of one-letter flags that the error is in, with its dash
	if e, ok := errors.AsType[*pflag.NotExistError](err); ok {
		if group = e.GetSpecifiedShortnames(); group == "" {
			f.sentence = fmt.Sprintf("%s has no flag --%s", c.CommandPath(), e.GetSpecifiedName())
			if near := spelling.Nearest(e.GetSpecifiedName(), flagNames(c)); near != "" {
				f.advice = fmt.Sprintf("did you mean --%s?", near)
			}
			return f
		}
		group = "-" + group
		f.sentence = fmt.Sprintf("%s has no flag -%s", c.CommandPath(), e.GetSpecifiedName())
	}
	if e, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		f.sentence = fmt.Sprintf("--%s: invalid value %q (%v)", e.GetFlag().Name, e.GetValue(), plainCause(e))
		if group = s.shorthandGroup(e.GetValue()); group != "" {
			f.sentence = fmt.Sprintf("%s is read as -%s %s, and %q is not a value of --%s", group, e.GetFlag().Shorthand, e.GetValue(), e.GetValue(), e.GetFlag().Name)
		}
	}
	if e, ok := errors.AsType[*pflag.ValueRequiredError](err); ok {
		f.sentence = fmt.Sprintf("--%s needs a value", e.GetFlag().Name)
	}
	if strings.Contains(c.Use, "[BODY]") && group != "" {
		f.advice = fmt.Sprintf("to send it as a body, write -- before it: %s QUEUE -- %s", c.CommandPath(), group)
	}
	return f
}

// plainCause returns the cause of a bad value in plain words.
func plainCause(err error) string {
	text := rootCause(err)
	switch {
	case strings.Contains(text, "invalid duration"), strings.Contains(text, "in duration"):
		return "want a duration like 30s, 5m or 2h"
	case strings.Contains(text, "invalid syntax"):
		return "want a whole number"
	}
	return text
}

// shorthandGroup returns the argument with one dash that ends in value, and "" if
// there is none.
func (s *shell) shorthandGroup(value string) string {
	for _, arg := range s.Args {
		if strings.HasPrefix(arg, "-") && !strings.HasPrefix(arg, "--") && len(arg) == len(value)+2 && strings.HasSuffix(arg, value) {
			return arg
		}
	}
	return ""
}

// flagNames returns the flags of a command.
func flagNames(c *cobra.Command) []string {
	var names []string
	add := func(flag *pflag.Flag) {
		if !flag.Hidden {
			names = append(names, flag.Name)
		}
	}
	c.Flags().VisitAll(add)
	c.InheritedFlags().VisitAll(add)
	return names
}

// helpCommand is mailbox help.
func (s *shell) helpCommand() *cobra.Command {
	return &cobra.Command{
		Use: "help [COMMAND]", Short: "Help about a command",
		RunE: func(c *cobra.Command, args []string) error {
			target, rest, err := c.Root().Find(args)
			switch {
			case err != nil:
				return err
			case len(rest) > 0 && target.HasSubCommands():
				return unknownCommand(target, rest[0])
			}
			target.InitDefaultHelpFlag()
			return target.Help()
		},
	}
}
