package cli

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mailboxmq/mailbox/driver"
)

// consoleView is the result of mailbox console in JSON.
type consoleView struct {
	Address string `json:"address"`
}

func (s *shell) consoleCommand() *cobra.Command {
	path, readOnly, open := "", false, false
	c := &cobra.Command{
		Use: "console", Short: "Sign in to the web console",
		Long: "Print the address of the daemon's web console, with a code that signs a browser in. The code works once and for a minute.\n" +
			"It stands for the token, which stays between this command and the daemon; the session lasts 8 hours at most.",
		Example: "mailbox console\nmailbox console --open --read-only",
		Args:    wants(0, 0),
		RunE: s.withAPI(func(ctx context.Context, a *api, _ []string) error {
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
	c.Flags().BoolVar(&open, "open", false, "open it in the browser of this machine")
	return c
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
