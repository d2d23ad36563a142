package server

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"github.com/mailboxmq/mailbox/internal/spelling"
	"github.com/mailboxmq/mailbox/internal/version"
)

// Load reads a configuration: flags from args, which does not include the name of the
// program, win over variables from environ, these over the file that --config or
// MAILBOXD_CONFIG names, and that over the defaults. For --help and --version it writes
// to stdout and returns flag.ErrHelp. It reads no other file. Errors have one line.
func Load(args, environ []string, stdout io.Writer) (Config, error) {
	flags, given := parseFlags()
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		writeUsage(stdout)
		return Config{}, err
	case err != nil:
		return Config{}, explainFlag(err)
	case given["version"] != "":
		_, _ = fmt.Fprintf(stdout, "mailboxd %s\n", version.Read())
		return Config{}, flag.ErrHelp
	case flags.NArg() > 0:
		return Config{}, fmt.Errorf("unexpected argument %q; mailboxd takes flags only, see mailboxd --help", flags.Arg(0))
	}
	variables, err := readEnvironment(environ)
	if err != nil {
		return Config{}, err
	}
	var c Config
	path := variables["MAILBOXD_CONFIG"]
	if value, ok := given["config"]; ok {
		path = value
	}
	if path != "" {
		if err := readFile(&c, path); err != nil {
			return Config{}, err
		}
	}
	for i := range settings {
		s := &settings[i]
		if text, ok := variables[s.Variable]; ok {
			if err := s.set(&c, text); err != nil {
				return Config{}, fmt.Errorf("%s: %w", s.Variable, err)
			}
		}
	}
	for i := range settings {
		s := &settings[i]
		if text, ok := given[s.Flag]; ok {
			if err := s.set(&c, text); err != nil {
				return Config{}, fmt.Errorf("--%s: %w", s.Flag, err)
			}
		}
	}
	return c, c.Validate()
}

// parseFlags returns the flag set, and the map that Parse fills with the given flags.
func parseFlags() (*flag.FlagSet, map[string]string) {
	given := make(map[string]string)
	flags := flag.NewFlagSet("mailboxd", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	add := func(name string, isBool bool) {
		record := func(text string) error {
			given[name] = text
			return nil
		}
		if isBool {
			flags.BoolFunc(name, "", record)
		} else {
			flags.Func(name, "", record)
		}
	}
	add("config", false)
	add("version", true)
	for i := range settings {
		add(settings[i].Flag, settings[i].unit() == unitSwitch)
	}
	return flags, given
}

// explainFlag rewrites an error of package flag, which can be recognized only by its
// text.
func explainFlag(err error) error {
	if name, ok := strings.CutPrefix(err.Error(), "flag provided but not defined: -"); ok {
		return unknown("flag", "--", strings.TrimPrefix(name, "-"), func(s *setting) string { return s.Flag })
	}
	if name, ok := strings.CutPrefix(err.Error(), "flag needs an argument: -"); ok {
		return fmt.Errorf("--%s needs a value; see mailboxd --help", name)
	}
	return err
}

// unknown returns the error about a name that no setting has. It suggests the nearest
// name.
func unknown(kind, prefix, name string, nameOf func(*setting) string) error {
	known := make([]string, 0, len(settings))
	for i := range settings {
		known = append(known, nameOf(&settings[i]))
	}
	meant := spelling.Nearest(name, known)
	if i := slices.IndexFunc(known, func(key string) bool { return strings.HasSuffix(key, "."+name) }); i >= 0 {
		meant = known[i] // name lacks its section
	}
	if meant == "" {
		return fmt.Errorf("unknown %s %s%s; see mailboxd --help", kind, prefix, name)
	}
	return fmt.Errorf("unknown %s %s%s; did you mean %s%s? see mailboxd --help", kind, prefix, name, prefix, meant)
}

// writeUsage writes the help for all flags, in groups.
func writeUsage(w io.Writer) {
	var b strings.Builder
	b.WriteString(`mailboxd is the mailbox daemon.

usage: mailboxd [flags]

Flags win over variables, those over the file, and that over the defaults, which are in
parentheses. The variable of --max-conns is MAILBOXD_MAX_CONNS, and so on; the key in
the file is in brackets. SIGHUP changes what is marked with *; the rest needs a restart.

`)
	usageLine(&b, "config FILE", "file of settings, in TOML; deploy/mailboxd.sample.toml has them all")
	usageLine(&b, "help", "print this")
	usageLine(&b, "version", "print the version")
	group := ""
	for _, s := range allSettings() {
		if s.Group != group {
			group = s.Group
			fmt.Fprintf(&b, "\n%s:\n", group)
		}
		name, live := s.Flag, ""
		if s.Unit != unitSwitch {
			name += " " + strings.ToUpper(s.Unit)
		}
		if s.Live {
			live = "*"
		}
		usageLine(&b, name, fmt.Sprintf("%s%s [%s]%s", s.Help, s.shownDefault(), s.Key, live))
	}
	_, _ = io.WriteString(w, b.String())
}

func usageLine(b *strings.Builder, name, text string) { fmt.Fprintf(b, "  --%-30s %s\n", name, text) }

// shownDefault returns the default in parentheses, or nothing.
func (s *setting) shownDefault() string {
	switch {
	case s.Default == "" || s.Deprecated:
		return ""
	case strings.HasPrefix(s.Default, "("):
		return " " + s.Default
	case s.Default != s.DefaultMicro && s.Key != "profile":
		return fmt.Sprintf(" (%s; micronode: %s)", s.Default, s.DefaultMicro)
	}
	return " (" + s.Default + ")"
}

// readEnvironment returns the MAILBOXD_ variables. An unknown one is an error, because
// it is probably mistyped and would be ignored silently.
func readEnvironment(environ []string) (map[string]string, error) {
	known := map[string]bool{"MAILBOXD_CONFIG": true}
	for _, s := range settings {
		known[s.Variable] = true
	}
	variables := make(map[string]string)
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		if !strings.HasPrefix(name, "MAILBOXD_") {
			continue
		}
		if !known[name] {
			return nil, unknown("variable", "", name, func(s *setting) string { return s.Variable })
		}
		variables[name] = value
	}
	return variables, nil
}

// readFile reads a TOML file.
func readFile(c *Config, path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read configuration: %w", err)
	}
	var tree map[string]any
	if err := toml.Unmarshal(text, &tree); err != nil {
		if at, ok := errors.AsType[*toml.DecodeError](err); ok {
			row, column := at.Position()
			return fmt.Errorf("%s: invalid TOML: line %d, column %d: %w", path, row, column, err)
		}
		return fmt.Errorf("%s: invalid TOML: %w", path, err)
	}
	return apply(c, path, "", tree)
}

func apply(c *Config, path, prefix string, tree map[string]any) error {
	for name, value := range tree {
		key := prefix + name
		if key == "sqs.queues" {
			if err := c.SQS.declare(value); err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			continue
		}
		if table, ok := value.(map[string]any); ok {
			if err := apply(c, path, key+".", table); err != nil {
				return err
			}
			continue
		}
		s := settingOf(key)
		if s == nil {
			return fmt.Errorf("%s: %w", path, unknown("key", "", key, func(s *setting) string { return s.Key }))
		}
		text, err := textOf(value)
		if err == nil {
			err = s.set(c, text)
		}
		if err != nil {
			return fmt.Errorf("%s: %s: %w", path, key, err)
		}
	}
	return nil
}

func settingOf(key string) *setting {
	for i := range settings {
		if settings[i].Key == key {
			return &settings[i]
		}
	}
	return nil
}

func textOf(value any) (string, error) {
	switch value := value.(type) {
	case string:
		return value, nil
	case bool:
		return strconv.FormatBool(value), nil
	case int64:
		return strconv.FormatInt(value, 10), nil
	}
	return "", fmt.Errorf("invalid value; want a string, a whole number, true or false")
}

// defaultDataDir returns the default of data_dir.
func defaultDataDir() string {
	if dir := os.Getenv("STATE_DIRECTORY"); dir != "" { // systemd
		return dir
	}
	if dir := os.Getenv("XDG_STATE_HOME"); dir != "" {
		return filepath.Join(dir, "mailboxd")
	}
	if home, err := os.UserHomeDir(); err == nil && home != "/" {
		return filepath.Join(home, ".local", "state", "mailboxd")
	}
	return filepath.Join(string(filepath.Separator), "var", "lib", "mailboxd")
}
