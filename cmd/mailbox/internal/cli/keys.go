package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/keyring"
)

func (s *shell) keysCommand() *cobra.Command {
	return parent("keys", "List and rotate the keys that sign tokens", s.keysList(), s.keysRotate())
}

// keyFile finds and reads the key file of a daemon on this machine.
func (s *shell) keyFile(named string) (path string, ring *keyring.Ring, err error) {
	paths := []string{named}
	if named == "" {
		if path := s.environ["MAILBOXD_KEY_FILE"]; path != "" {
			paths[0] = path
		} else {
			paths = nil
			for _, dir := range s.dataDirs() {
				paths = append(paths, filepath.Join(dir, keysFile))
			}
		}
	}
	for _, path = range paths {
		if ring, err = keyring.ReadFile(path); err == nil {
			return path, ring, nil
		}
		if !errors.Is(err, driver.ErrNotFound) {
			return "", nil, &failure{
				exit: exitFailed, code: "key_file", cause: err, sentence: fmt.Sprintf("the keys in %s cannot be read (%s)", path, rootCause(err)),
				advice: "run this as the user of the daemon, and chmod 600 the file if others can read it",
			}
		}
	}
	return "", nil, &failure{
		exit: exitNotFound, code: "key_file", sentence: "there are no keys in " + strings.Join(paths, " or "),
		advice: "run this on the machine of the daemon, and name the file with --keys or its directory with --data-dir",
	}
}

// keyView is a key in JSON. It has nothing secret.
type keyView struct {
	KeyID     string     `json:"key_id"`
	Current   bool       `json:"current"`
	RetiredAt *time.Time `json:"retired_at,omitempty"`
}

func keyViews(ring *keyring.Ring) []keyView {
	var views []keyView
	for i, key := range ring.Keys() {
		views = append(views, keyView{key.ID().String(), i == 0, timeOf(key.RetiredAt())})
	}
	return views
}

func (s *shell) keysList() *cobra.Command {
	var file string
	c := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List the keys of a daemon on this machine", Args: wants(0, 0),
		RunE: s.run(func(_ context.Context, _ []string) error {
			_, ring, err := s.keyFile(file)
			if err != nil {
				return err
			}
			t := table{header: []string{"KEY", "STATE"}}
			for _, v := range keyViews(ring) {
				state := "accepted"
				switch {
				case v.Current:
					state = "current"
				case v.RetiredAt != nil:
					state = "retired " + stamp(v.RetiredAt)
				}
				t.add(v.KeyID, state)
				if s.global.json {
					if err := s.object(v); err != nil {
						return err
					}
				}
			}
			if s.global.json {
				return nil
			}
			return t.write(s.Stdout)
		}),
	}
	c.Flags().StringVar(&file, "keys", "", "key file")
	return c
}

// rotation is one run of mailbox keys rotate.
type rotation struct {
	file   string
	retire bool
	yes    bool
	pid    int
}

// rotatedView is a rotation in JSON.
type rotatedView struct {
	File         string    `json:"file"`
	Keys         []keyView `json:"keys"`
	OperatorFile string    `json:"operator_token_file,omitempty"`
	Reloaded     bool      `json:"reloaded"`
}

func (s *shell) keysRotate() *cobra.Command {
	var r rotation
	c := &cobra.Command{
		Use: "rotate", Short: "Make a new key that signs tokens",
		Long: "Make a new key, which a daemon on this machine mints with once it has read its keys again: tell it with --pid,\n" +
			"or send it a SIGHUP. Tokens of earlier keys stay valid, unless --retire ends them; then a new operator's token is\n" +
			"written too.",
		Example: "mailbox keys rotate --pid $(pidof mailboxd)\nmailbox keys rotate --retire --pid $(pidof mailboxd)",
		Args:    wants(0, 0),
		RunE:    s.run(func(ctx context.Context, _ []string) error { return s.rotate(ctx, &r) }),
	}
	c.Flags().StringVar(&r.file, "keys", "", "key file")
	c.Flags().BoolVar(&r.retire, "retire", false, "end all tokens of earlier keys, now; acks of earlier deliveries still work")
	c.Flags().BoolVarP(&r.yes, "yes", "y", false, "do not ask")
	c.Flags().IntVar(&r.pid, "pid", 0, "process id of the daemon, to send it a SIGHUP")
	return c
}

// change rotates the keys in a ring.
func (r *rotation) change(ring *keyring.Ring, now time.Time) error {
	earlier := ring.Keys()
	if err := ring.Rotate(keyring.NewKey()); err != nil {
		return &failure{exit: exitFull, code: "full", cause: err, sentence: fmt.Sprintf("the key file has %d keys, which is the limit", len(earlier)), advice: "remove a key whose tokens have all expired"}
	}
	for _, key := range earlier {
		if r.retire && key.RetiredAt().IsZero() {
			if err := ring.Retire(key.ID(), now); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *shell) rotate(ctx context.Context, r *rotation) error {
	path, current, err := s.keyFile(r.file)
	if err != nil {
		return err
	}
	if r.pid < 0 {
		return usageError("--pid: %d is not a process id; want that of mailboxd", r.pid)
	}
	if r.pid > 0 {
		if err := checkProcess(r.pid); err != nil {
			return usageError("--pid: cannot signal process %d (%v), so no key was made; want the process id of mailboxd", r.pid, err)
		}
	}
	if r.retire {
		ends := 0
		for _, key := range current.Keys() {
			if key.RetiredAt().IsZero() {
				ends++
			}
		}
		if err := s.confirm(r.yes, fmt.Sprintf("retiring %s in %s ends every token made so far, those of tenants and workers too, and", plural(ends, "key"), path)); err != nil {
			return err
		}
	}
	now := time.Now()
	ring, err := keyring.Change(ctx, path, func(ring *keyring.Ring) error { return r.change(ring, now) })
	if err != nil {
		return err
	}
	v := rotatedView{File: path}
	if r.retire {
		if v.OperatorFile, err = s.renewOperator(ring, filepath.Dir(path), now); err != nil {
			return err
		}
	}
	if r.pid > 0 {
		if err := hangUp(r.pid); err != nil {
			return &failure{exit: exitFailed, code: "signal", cause: err, sentence: fmt.Sprintf("the new key is in %s, but process %d cannot be signalled (%v)", path, r.pid, err), advice: "send the daemon a SIGHUP, or restart it"}
		}
		v.Reloaded = true
	}
	v.Keys = keyViews(ring)
	if s.global.json {
		return s.object(v)
	}
	next := "The daemon was told."
	if !v.Reloaded {
		next = "The daemon uses it after a SIGHUP: kill -HUP $(pidof mailboxd)"
	}
	retired := ""
	if r.retire {
		retired = fmt.Sprintf("Every earlier key is retired; a new operator's token is in %s. ", v.OperatorFile)
	}
	return s.line("The new key %s is in %s. %s%s", v.Keys[0].KeyID, path, retired, next)
}

// operatorLife is how long an operator's token is valid, as in the daemon.
const operatorLife = 365 * 24 * time.Hour

// renewOperator writes a new operator's token, signed with the new key.
func (s *shell) renewOperator(ring *keyring.Ring, dir string, now time.Time) (path string, err error) {
	if path = s.environ["MAILBOXD_TOKEN_FILE"]; path == "" {
		path = filepath.Join(dir, operatorTokenFile)
	}
	token, err := ring.Mint("", capability.EveryOperation(), capability.Queues(capability.AnyQueue()), capability.ExpiresAt(now.Add(operatorLife)))
	if err != nil {
		return "", err
	}
	return path, token.WriteFile(path)
}
