package container_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/internal/testing/proctest"
	"github.com/mailboxmq/mailbox/mailboxtest/container"
)

// The tests run this program as docker. It starts mailboxd with the variables of the image that tools/release
// makes, in a folder that a variable names.
const (
	dockerFolder = "MAILBOX_TEST_DOCKER"
	dockerDaemon = "MAILBOX_TEST_MAILBOXD"
	image        = "ghcr.io/mailboxmq/mailboxd:sqs"
)

func TestMain(m *testing.M) {
	if folder := os.Getenv(dockerFolder); folder != "" {
		os.Exit(docker(folder, os.Args[1:]))
	}
	os.Exit(m.Run())
}

// docker does what docker does with the arguments that the package gives it.
func docker(folder string, args []string) int {
	fail := func(format string, args ...any) int {
		fmt.Fprintf(os.Stderr, format+"\n", args...)
		return 125
	}
	file := func(name, what string) string { return filepath.Join(folder, name+"."+what) }
	switch args[0] {
	case "port":
		address, err := os.ReadFile(file(args[1], strings.TrimSuffix(args[2], "/tcp")))
		if err != nil {
			return fail("Error: No public port %q published for %s", args[2], args[1])
		}
		fmt.Println(string(address))
		return 0
	case "rm":
		text, err := os.ReadFile(file(args[2], "pid"))
		if err != nil {
			return fail("Error: No such container: %s", args[2])
		}
		if err := processOf(text).Kill(); err != nil {
			return fail("%v", err)
		}
		return 0
	case "run":
	default:
		return fail("unknown command %q", args)
	}
	var name string
	var ports []string
	env := imageVariables()
	for i := 1; i < len(args)-1; i++ {
		switch args[i] {
		case "--name":
			i++
			name = args[i]
		case "-p":
			i++
			ports = append(ports, strings.TrimSuffix(strings.TrimPrefix(args[i], "127.0.0.1::"), "/tcp"))
		case "-e":
			i++
			env = append(env, args[i])
		case "--rm":
		default:
			return fail("unknown flag: %s", args[i])
		}
	}
	if args[len(args)-1] != image {
		return fail("Unable to find image '%s' locally", args[len(args)-1])
	}
	t := &ender{}
	for _, port := range ports {
		address := "127.0.0.1:" + proctest.FreePort(t)
		for i := range env {
			env[i] = strings.Replace(env[i], "=0.0.0.0:"+port, "="+address, 1)
		}
		if err := os.WriteFile(file(name, port), []byte(address+"\n"), 0o600); err != nil {
			return fail("%v", err)
		}
	}
	daemon := exec.Command(os.Getenv(dockerDaemon))
	daemon.Env = append(env, "HOME="+folder, "MAILBOXD_DATA_DIR="+folder, "MAILBOXD_LISTEN_OAP=127.0.0.1:0")
	daemon.Stdout, daemon.Stderr, daemon.SysProcAttr = os.Stdout, os.Stderr, proctest.DieWithParent()
	if err := daemon.Start(); err != nil {
		return fail("%v", err)
	}
	if err := os.WriteFile(file(name, "pid"), []byte(strconv.Itoa(daemon.Process.Pid)), 0o600); err != nil {
		return fail("%v", err)
	}
	if daemon.Wait() != nil {
		return daemon.ProcessState.ExitCode() & 0xff
	}
	return 0
}

// processOf returns the process of a file with its id.
func processOf(text []byte) *os.Process {
	pid, err := strconv.Atoi(string(text))
	if err != nil {
		panic(err)
	}
	process, err := os.FindProcess(pid)
	if err != nil {
		panic(err)
	}
	return process
}

// imageVariables returns the variables of the image for tests, from the program that makes it.
func imageVariables() (env []string) {
	code, err := os.ReadFile("../../tools/release/image.go")
	if err != nil {
		panic(err)
	}
	for _, found := range regexp.MustCompile(`"(MAILBOXD_[A-Z_]+=[^"]*)"`).FindAllSubmatch(code, -1) {
		env = append(env, string(found[1]))
	}
	return env
}

// An ender ends the process where a test would fail.
type ender struct{ testing.TB }

func (*ender) Helper() {}

func (*ender) Fatalf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", args...)
	os.Exit(125)
}

// dockerOptions makes this program docker, and returns the folder of its containers.
func dockerOptions(t *testing.T) (string, *container.Options) {
	t.Helper()
	programs, err := proctest.Build("container", "mailboxd")
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	t.Setenv(dockerFolder, folder)
	t.Setenv(dockerDaemon, filepath.Join(programs, "mailboxd"))
	return folder, &container.Options{Command: os.Args[0]}
}

func TestContainerServesUntilTestEnds(t *testing.T) {
	folder, options := dockerOptions(t)
	var daemon *container.Container
	t.Run("a test", func(t *testing.T) {
		daemon = container.Start(t, image, options)
		if answer := ask(t, http.MethodGet, daemon.SQSEndpoint()+"/_localstack/health", "", ""); !strings.Contains(answer, "running") {
			t.Errorf("the SQS endpoint answers %s", answer)
		}
		if answer := ask(t, http.MethodPost, daemon.HTTPAddress()+"/v1/send", daemon.Token(), `{"topic":"orders","idem_key":"1","payload_b64":"SGk="}`); !strings.Contains(answer, "msg_id") {
			t.Errorf("a send answers %s", answer)
		}
	})
	if answer, err := http.Get(daemon.HTTPAddress() + "/healthz"); err == nil {
		_ = answer.Body.Close()
		t.Error("the daemon answers after its test")
	}
	if err := daemon.Terminate(); err != nil {
		t.Errorf("a second end: %v", err)
	}
	if pids, _ := filepath.Glob(filepath.Join(folder, "*.pid")); len(pids) != 1 {
		t.Errorf("containers were started: %v, want one", pids)
	}
}

func ask(t *testing.T, method, address, token, body string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, address, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Close = true
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	var text bytes.Buffer
	if _, err := text.ReadFrom(answer.Body); err != nil {
		t.Fatal(err)
	}
	return answer.Status + " " + text.String()
}

func TestContainerThatFailsReportsItsLog(t *testing.T) {
	_, options := dockerOptions(t)
	if _, err := container.Run(t.Context(), "nowhere/mailboxd:sqs", options); err == nil || !strings.Contains(err.Error(), "Unable to find image 'nowhere/mailboxd:sqs'") {
		t.Errorf("an image that does not exist: %v", err)
	}
	options.Env = map[string]string{"MAILBOXD_MAX_CONNS": "many"}
	if _, err := container.Run(t.Context(), image, options); err == nil || !strings.Contains(err.Error(), `"many"`) {
		t.Errorf("a setting that mailboxd refuses: %v", err)
	}
}

func TestContainerIsRemovedWhenContextEnds(t *testing.T) {
	folder, options := dockerOptions(t)
	options.Env = map[string]string{"MAILBOXD_LISTEN": "127.0.0.1:0"} // not at the port that is published
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	if _, err := container.Run(ctx, image, options); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want %v", err, context.DeadlineExceeded)
	}
	pids, _ := filepath.Glob(filepath.Join(folder, "*.pid"))
	for _, file := range pids {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if processOf(text).Signal(syscall.Signal(0)) == nil {
			t.Errorf("process %s still runs", text)
		}
	}
}

func TestMissingCommandIsNamed(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if _, err := container.Run(t.Context(), image, nil); err == nil || !strings.Contains(err.Error(), "neither docker nor podman") {
		t.Errorf("got %v", err)
	}
}
