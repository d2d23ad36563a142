package sqsclients_test

import (
	"cmp"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/internal/testing/proctest"
)

// scriptTimeout is how long a script may take on a busy machine.
const scriptTimeout = 8 * time.Minute

// A clientEnv runs a foreign client: it has the daemon and the environment variables.
type clientEnv struct {
	*daemon
	variables []string
}

func newClientEnv(t *testing.T, variables ...string) *clientEnv {
	t.Helper()
	t.Parallel()
	return &clientEnv{start(t), append(variables, "PREFIX=story-")}
}

// run runs a script, and fails the test with its output if it fails.
func (s *clientEnv) run(line ...string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), scriptTimeout)
	defer cancel()
	said, err := s.command(ctx, line...).CombinedOutput()
	if err != nil {
		s.t.Fatalf("%s: %v\n%s\nthe daemon says:\n%s", strings.Join(line, " "), err, said, s.Stderr.String())
	}
	for line := range strings.Lines(string(said)) {
		if strings.Contains(line, "all as it should be") {
			s.t.Log(strings.TrimSpace(line))
		}
	}
}

func (s *clientEnv) command(ctx context.Context, line ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, line[0], line[1:]...)
	command.Dir = "testdata"
	command.Env = append(append(os.Environ(), s.environment()...), s.variables...)
	command.SysProcAttr = proctest.DieWithParent()
	return command
}

// node returns the environment variable with the path of the clients from npm.
func node(t *testing.T) string {
	t.Helper()
	dir, err := proctest.Cache("sqsclients")
	if err == nil {
		_, err = os.Stat(filepath.Join(dir, "node_modules", "sqs-consumer"))
	}
	if err != nil {
		proctest.End(t, &proctest.MissingError{Program: "the SQS clients from npm", Err: err})
	}
	proctest.Find(t, "node")
	return "CLIENTS=" + dir
}

// pythons returns the interpreters that have the modules: Debian's, and the first in the
// path if that is a different one, whose boto3 is newer and uses another protocol.
func pythons(t *testing.T, modules string) []string {
	t.Helper()
	var found []string
	seen := make(map[string]bool)
	for _, python := range []string{cmp.Or(os.Getenv("MAILBOX_PYTHON"), "/usr/bin/python3"), "python3"} {
		name, err := exec.Command(python, "-c", "import sys, "+modules+"; print(sys.executable)").Output()
		if err == nil && !seen[string(name)] {
			seen[string(name)] = true
			found = append(found, python)
		}
	}
	if len(found) == 0 {
		proctest.End(t, &proctest.MissingError{Program: "a Python 3 with " + modules})
	}
	return found
}

func TestJavaScriptSDK(t *testing.T) {
	newClientEnv(t, node(t)).run("node", "node_story.mjs")
}

func TestSQSConsumer(t *testing.T) {
	newClientEnv(t, node(t), "COUNT=100").run("node", "consumer_story.mjs")
}

func TestBoto3(t *testing.T) {
	for _, python := range pythons(t, "boto3") {
		t.Run(strings.ReplaceAll(python, "/", "_"), func(t *testing.T) { newClientEnv(t).run(python, "boto3_story.py") })
	}
}

// eachAWSCLI runs a test with each AWS CLI of this machine.
func eachAWSCLI(t *testing.T, test func(t *testing.T, path string)) {
	t.Helper()
	tried := 0
	for _, program := range []string{"/usr/bin/aws", "aws"} {
		path, err := exec.LookPath(program)
		if err != nil || program == "aws" && path == "/usr/bin/aws" {
			continue
		}
		tried++
		t.Run(strings.ReplaceAll(program, "/", "_"), func(t *testing.T) { test(t, path) })
	}
	if tried == 0 {
		proctest.End(t, &proctest.MissingError{Program: "awscli"})
	}
}

func TestAWSCLI(t *testing.T) {
	eachAWSCLI(t, func(t *testing.T, path string) { newClientEnv(t, "AWS="+path).run("bash", "awscli_story.sh") })
}

// TestAWSCLIFollowsPrintedEndpoint runs the commands of README.md and docs/sqs.md. The
// proxy, which does not exist, keeps a CLI that ignores the endpoint from reaching Amazon.
func TestAWSCLIFollowsPrintedEndpoint(t *testing.T) {
	eachAWSCLI(t, func(t *testing.T, path string) {
		d := start(t)
		script := `eval "$("$MAILBOX" cap aws)" && "$AWS" sqs create-queue --queue-name orders &&
			"$AWS" sqs send-message --queue-url orders --message-body hello && "$AWS" sqs receive-message --queue-url orders`
		command := exec.Command("bash", "-c", script)
		command.Env = []string{
			"PATH=" + os.Getenv("PATH"), "HOME=" + d.dir, "AWS=" + path, "MAILBOX=" + filepath.Join(programs(t), "mailbox"),
			"MAILBOX_ADDR=" + d.address, "MAILBOXD_DATA_DIR=" + d.dir, "AWS_REGION=us-east-1", "AWS_MAX_ATTEMPTS=1",
			"AWS_EC2_METADATA_DISABLED=true", "HTTPS_PROXY=http://127.0.0.1:1",
		}
		out, err := command.CombinedOutput()
		if err != nil || !strings.Contains(string(out), `"Body": "hello"`) {
			t.Errorf("%v:\n%s", err, out)
		}
	})
}
