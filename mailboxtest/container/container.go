// Package container runs mailboxd in a container for a test, for programs that talk to it, or to Amazon SQS.
//
//	daemon := container.Start(t, "ghcr.io/mailboxmq/mailboxd:sqs", nil)
//	client := sqs.New(sqs.Options{BaseEndpoint: aws.String(daemon.SQSEndpoint()), Region: "local-1", Credentials: any})
//
// It needs the command docker, or podman, and an engine on this machine: the container's ports are published on
// 127.0.0.1. It imports the standard library only. A test that needs no container is faster with
// mailboxtest/daemontest, which runs the same daemon inside the test.
package container

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	portHTTP = "9410/tcp"
	portSQS  = "4566/tcp"
	// healthInterval is the time between questions whether the daemon is ready.
	healthInterval = 20 * time.Millisecond
	// startWithin bounds Start, which may have to pull the image.
	startWithin = 5 * time.Minute
	// stopWithin bounds the removal of a container.
	stopWithin = 30 * time.Second
)

// Options are the settings of a container. Nil means the defaults.
type Options struct {
	// Command is the program that runs containers, by default docker, or podman where there is no docker.
	Command string
	// Env has further variables of the container: settings of mailboxd, such as MAILBOXD_MAX_DEAD.
	Env map[string]string
}

// A Container is a running mailboxd. Its methods are safe for concurrent use.
type Container struct {
	command, name string
	http, sqs     string
	token         string
	run           *exec.Cmd
	logs          output
	ended         chan struct{} // closed when the command has ended
	err           error         // of the command; set before ended is closed
	remove        func() error
}

// Start runs an image until the test ends. It fails the test if the daemon is not ready within five minutes, and logs what
// the daemon has logged if the test has failed.
func Start(t testing.TB, image string, o *Options) *Container {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startWithin)
	defer cancel()
	c, err := Run(ctx, image, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Terminate(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("the log of %s:\n%s", image, c.logs.String())
		}
	})
	return c
}

// Run runs an image and returns when the daemon is ready. It pulls the image if this machine does not have it.
// When ctx ends before, or the container does, nothing is left of it, and the error has its log. The container runs until
// Terminate.
func Run(ctx context.Context, image string, o *Options) (*Container, error) {
	if o == nil {
		o = &Options{}
	}
	command, err := commandOf(o)
	if err != nil {
		return nil, err
	}
	c := &Container{command: command, name: "mailbox-" + strings.ToLower(rand.Text()), ended: make(chan struct{})}
	c.remove = sync.OnceValue(c.terminate)
	token, err := c.begin(image, o)
	if err == nil {
		if err = c.await(ctx, token); err == nil {
			return c, nil
		}
		err = errors.Join(err, c.Terminate())
	}
	return nil, fmt.Errorf("container: run %s: %w\n%s", image, err, c.logs.String())
}

func commandOf(o *Options) (string, error) {
	if o.Command != "" {
		return o.Command, nil
	}
	for _, name := range []string{"docker", "podman"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", errors.New("container: neither docker nor podman is in PATH; install one, or use mailboxtest/daemontest")
}

// begin starts the command, and returns a channel with the first line of its output, which is the token.
func (c *Container) begin(image string, o *Options) (<-chan string, error) {
	args := []string{"run", "--rm", "--name", c.name, "-p", "127.0.0.1::" + portHTTP, "-p", "127.0.0.1::" + portSQS}
	env := map[string]string{"MAILBOXD_INSECURE_LISTEN": "true"}
	maps.Copy(env, o.Env)
	env["MAILBOXD_TOKEN_OUT"] = "1" // the first line of the output
	for _, name := range slices.Sorted(maps.Keys(env)) {
		args = append(args, "-e", name+"="+env[name])
	}
	c.run = exec.Command(c.command, append(args, image)...)
	c.run.Stderr = &c.logs
	out, err := c.run.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.run.Start(); err != nil {
		return nil, err
	}
	token := make(chan string, 1)
	go func() {
		lines := bufio.NewReader(out)
		if line, err := lines.ReadString('\n'); err == nil {
			token <- strings.TrimSpace(line)
		}
		_, _ = io.Copy(io.Discard, lines) // until the container has ended
		c.err = c.run.Wait()
		close(c.ended)
	}()
	return token, nil
}

// await waits until the daemon is ready, and finds its ports.
func (c *Container) await(ctx context.Context, token <-chan string) error {
	select {
	case c.token = <-token: // the daemon prints it once it listens
	case <-c.ended:
		return fmt.Errorf("it has ended: %w", c.err)
	case <-ctx.Done():
		return ctx.Err()
	}
	for port, address := range map[string]*string{portHTTP: &c.http, portSQS: &c.sqs} {
		published, err := exec.CommandContext(ctx, c.command, "port", c.name, port).Output()
		if err != nil {
			return fmt.Errorf("%s port %s %s: %w", c.command, c.name, port, err)
		}
		*address, _, _ = strings.Cut(strings.TrimSpace(string(published)), "\n")
	}
	for {
		err := c.healthy(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-c.ended:
			return fmt.Errorf("it has ended: %w", c.err)
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ctx.Err(), err)
		case <-time.After(healthInterval):
		}
	}
}

// healthy asks whether the daemon is ready.
func (c *Container) healthy(ctx context.Context) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.HTTPAddress()+"/readyz", nil)
	if err != nil {
		return err
	}
	request.Close = true // no connection outlives the question
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	_ = answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("GET /readyz: %s", answer.Status)
	}
	return nil
}

// HTTPAddress is where the HTTP API, gRPC and the console are: http://127.0.0.1:40123.
func (c *Container) HTTPAddress() string { return "http://" + c.http }

// SQSEndpoint is the endpoint for clients of Amazon SQS. Only images of the variant sqs listen there; they accept every
// signature, and none.
func (c *Container) SQSEndpoint() string { return "http://" + c.sqs }

// Token allows everything.
func (c *Container) Token() string { return c.token }

// Terminate removes the container and waits for its end, at most 30 seconds. Further calls return the result of the first.
func (c *Container) Terminate() error { return c.remove() }

func (c *Container) terminate() error {
	select {
	case <-c.ended: // --rm has removed it
		return nil
	default:
	}
	said, err := exec.Command(c.command, "rm", "--force", c.name).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("container: %s rm --force %s: %w: %s", c.command, c.name, err, bytes.TrimSpace(said))
	}
	timer := time.NewTimer(stopWithin)
	defer timer.Stop()
	select {
	case <-c.ended:
		return err
	case <-timer.C:
	}
	_ = c.run.Process.Kill() // it still pulls the image, or the engine does not answer
	<-c.ended
	return errors.Join(err, fmt.Errorf("container: %s still ran %v after it was removed", c.name, stopWithin))
}

// output is a log that can be read while it is written.
type output struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}
