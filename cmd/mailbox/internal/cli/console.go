package cli

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
)

// consoleView is the result of mailbox console in JSON.
type consoleView struct {
	Address string `json:"address"`
}

func (s *shell) consoleCommand() *cobra.Command {
	path, readOnly, open := "", false, false
	var scope caveatFlags
	c := &cobra.Command{
		Use: "console", Short: "Sign in to the web console",
		Long: "Print the address of the daemon's web console, with a code that signs a browser in. The code works once and for a minute.\n" +
			"The session has a token that this command narrows to 8 hours, and further by --op and --queue: the daemon does not get the token itself.",
		Example: "mailbox console\nmailbox console --open --read-only\nmailbox console --op stats,peek --queue orders",
		Args:    wants(0, 0),
		RunE: s.withAPI(func(ctx context.Context, a *api, _ []string) error {
			var err error
			if a.token, err = scope.forSession(a.token, time.Now()); err != nil {
				return err
			}
			address, err := a.consoleAddress(ctx, path, readOnly)
			if err != nil {
				return err
			}
			if open {
				if err := openBrowser(ctx, address); err != nil {
					return fmt.Errorf("--open: %w; open it yourself: %s", err, address)
				}
			}
			return s.say(consoleView{address}, "%s", address)
		}),
	}
	c.Flags().StringVar(&path, "path", "/console/", "where the daemon serves the console (listen.console)")
	c.Flags().BoolVar(&readOnly, "read-only", false, "the session changes nothing")
	scope.registerScope(c.Flags())
	c.Flags().BoolVar(&open, "open", false, "open it in the browser of this machine")
	return c
}

// consoleSession is how long a session of the console lasts at most.
const consoleSession = 8 * time.Hour

// forSession narrows a token to a session of the console.
func (f *caveatFlags) forSession(token capability.Token, now time.Time) (capability.Token, error) {
	caveats, err := f.scope(nil, now)
	if err != nil {
		return token, err
	}
	narrowed, err := token.Narrow(append(caveats, capability.ExpiresAt(now.Add(consoleSession)))...)
	if err != nil {
		return token, usageError("the token cannot be narrowed further: %s", rootCause(err))
	}
	return narrowed, nil
}

// consoleAddress gets a one-time code, and returns the address that signs in with it. The code is in
// the fragment, which browsers do not send: no log has it.
func (a *api) consoleAddress(ctx context.Context, path string, readOnly bool) (string, error) {
	if a.endpoint.socket != "" {
		return "", usageError("--addr: a browser cannot open the socket %s; want the address of listen.http", a.endpoint.socket)
	}
	if !strings.HasPrefix(path, "/") || !strings.HasSuffix(path, "/") {
		return "", usageError("--path: invalid value %.60q; want a path like /console/", path)
	}
	var answer struct {
		Code string `json:"one_time_code"`
	}
	request := apiRequest{path: path + "code"}
	if readOnly {
		request.path += "?read_only=yes"
	}
	if err := a.call(ctx, request, &answer); err != nil {
		if errors.Is(err, driver.ErrNotFound) {
			return "", &failure{
				exit: exitFailed, code: "no_console", sentence: fmt.Sprintf("the daemon at %s serves no console at %s", a.endpoint.shown, path),
				advice: "name its path with --path, or turn it on with listen.console",
			}
		}
		return "", err
	}
	return a.endpoint.base + path + "login#" + answer.Code, nil
}

// openBrowser opens an address with the program of the system for that.
func openBrowser(ctx context.Context, address string) error {
	program, arguments := "xdg-open", []string{address}
	switch runtime.GOOS {
	case "darwin":
		program = "open"
	case "windows":
		program, arguments = "rundll32", []string{"url.dll,FileProtocolHandler", address}
	}
	return exec.CommandContext(ctx, program, arguments...).Run()
}
