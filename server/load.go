package server

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"
)

// Load reads a configuration: flags from args, which is without the name of the
// program, over variables from environ, over the file that --config or
// MAILBOXD_CONFIG names, over the defaults. Usage goes to usage when --help is
// asked for, and the error is flag.ErrHelp then. It reads the file and nothing
// else. Errors are sentences.
func Load(args, environ []string, usage io.Writer) (Config, error) {
	flags, given := parseFlags(usage)
	if err := flags.Parse(args); err != nil {
		return Config{}, err
	}
	if flags.NArg() > 0 {
		return Config{}, fmt.Errorf("the argument %q means nothing: mailboxd takes flags only", flags.Arg(0))
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
				return Config{}, fmt.Errorf("the variable %s %w", s.Variable, err)
			}
		}
	}
	for i := range settings {
		s := &settings[i]
		if text, ok := given[s.Flag]; ok {
			if err := s.set(&c, text); err != nil {
				return Config{}, fmt.Errorf("the flag --%s %w", s.Flag, err)
			}
		}
	}
	return c, c.Validate()
}

// parseFlags returns the flags, and where those that are given end up.
func parseFlags(usage io.Writer) (*flag.FlagSet, map[string]string) {
	given := make(map[string]string)
	flags := flag.NewFlagSet("mailboxd", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	add := func(name, help string, isBool bool) {
		record := func(text string) error {
			given[name] = text
			return nil
		}
		if isBool {
			flags.BoolFunc(name, help, record)
		} else {
			flags.Func(name, help, record)
		}
	}
	add("config", "file of settings, in TOML", false)
	for i := range settings {
		add(settings[i].Flag, settings[i].Help, settings[i].isBool())
	}
	flags.Usage = func() { writeUsage(usage) }
	return flags, given
}

// writeUsage explains the flags.
func writeUsage(w io.Writer) {
	var b strings.Builder
	b.WriteString("mailboxd is the mailbox daemon.\n\nusage: mailboxd [flags]\n\n")
	fmt.Fprintf(&b, "  --%-20s %s (MAILBOXD_CONFIG)\n", "config", "file of settings, in TOML")
	for _, s := range settings {
		fmt.Fprintf(&b, "  --%-20s %s (%s, %s)\n", s.Flag, s.Help, s.Key, s.Variable)
	}
	_, _ = io.WriteString(w, b.String())
}

// readEnvironment returns the variables that are ours. One that nobody knows is a
// typing error somebody would look for a long time.
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
			return nil, fmt.Errorf("the variable %s is not known; see mailboxd --help", name)
		}
		variables[name] = value
	}
	return variables, nil
}

// readFile reads a file of TOML.
func readFile(c *Config, path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("the file of settings cannot be read: %w", err)
	}
	var tree map[string]any
	if err := toml.Unmarshal(text, &tree); err != nil {
		if at, ok := errors.AsType[*toml.DecodeError](err); ok {
			row, column := at.Position()
			return fmt.Errorf("%s is no TOML: line %d, column %d: %w", path, row, column, err)
		}
		return fmt.Errorf("%s is no TOML: %w", path, err)
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
			return fmt.Errorf("%s: the key %s is not known; see mailboxd --help", path, key)
		}
		text, err := textOf(value)
		if err == nil {
			err = s.set(c, text)
		}
		if err != nil {
			return fmt.Errorf("%s: the key %s %w", path, key, err)
		}
	}
	return nil
}

func settingOf(key string) *Setting {
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
	return "", fmt.Errorf("is to be a text, a whole number, true or false")
}

// defaultDataDir is where a daemon without another place keeps its things.
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
