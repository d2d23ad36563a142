package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// childVariable makes this test program the daemon, so that it can be killed.
const childVariable = "TEST_AS_MAILBOXD"

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		os.Exit(run(os.Args[1:], os.Environ(), os.Stdout, os.Stderr))
	}
	if os.Getenv(workerVariable) != "" {
		runWorker()
	}
	os.Exit(m.Run())
}

// child is a daemon in a separate process.
type child struct {
	t       *testing.T
	process *exec.Cmd
	base    string
	token   string
	log     childLog
}

// childLog is what a child has logged so far.
type childLog struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *childLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *childLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func startChild(t *testing.T, dir string) *child {
	t.Helper()
	return startChildWith(t, dir, nil)
}

// startChildWith starts a child with further variables and flags.
func startChildWith(t *testing.T, dir string, environ []string, args ...string) *child {
	t.Helper()
	args = append([]string{"--data-dir=" + dir, "--listen=127.0.0.1:0", "--listen-oap=off"}, args...)
	c := &child{t: t, process: exec.Command(os.Args[0], args...)}
	c.process.Env = append(append(os.Environ(), childVariable+"=1"), environ...)
	c.process.Stderr = &c.log
	stdout, err := c.process.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.process.Process.Kill() })
	for lines := bufio.NewScanner(stdout); c.base == "" && lines.Scan(); {
		if _, rest, ok := strings.Cut(lines.Text(), "http://"); ok {
			address, _, _ := strings.Cut(rest, "/")
			c.base = "http://" + address
		}
	}
	token, err := os.ReadFile(filepath.Join(dir, "operator.token"))
	if c.base == "" || err != nil {
		t.Fatalf("it did not start: %v, %s", err, c.log.String())
	}
	c.token = strings.TrimSpace(string(token))
	return c
}

func (c *child) post(path, body string) (map[string]any, error) {
	request, err := http.NewRequest(http.MethodPost, c.base+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+c.token)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	var fields map[string]any
	if err := json.NewDecoder(response.Body).Decode(&fields); err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %v", response.Status, fields)
	}
	return fields, nil
}

// TestKilledDaemonLosesNothingConfirmed is gate G-1 for the daemon: after kill -9
// in the middle of sends and acks, everything that was confirmed holds:
// sent messages are there, acked ones are not.
func TestKilledDaemonLosesNothingConfirmed(t *testing.T) {
	dir := t.TempDir()
	var mu sync.Mutex
	sent, acked, unknown := make(map[string]bool), make(map[string]bool), make(map[string]bool)
	for round := range 3 {
		c := startChild(t, dir)
		most, enough := len(sent), make(chan struct{})
		var clients sync.WaitGroup
		for client := range 4 {
			clients.Go(func() {
				for i := 0; ; i++ {
					fields, err := c.post("/v1/send", fmt.Sprintf(`{"topic":"orders","idem_key":"%d-%d-%d","payload_b64":"SGk="}`, round, client, i))
					if err != nil {
						return
					}
					mu.Lock()
					if sent[fields["msg_id"].(string)] = true; len(sent) == most+150 {
						close(enough)
					}
					mu.Unlock()
					if client%2 == 0 {
						continue
					}
					got, err := c.post("/v1/recv", `{"topic":"orders","visibility_ms":250,"max_messages":1}`)
					if err != nil {
						return
					}
					for _, m := range got["messages"].([]any) {
						id := m.(map[string]any)["msg_id"].(string)
						_, err := c.post("/v1/ack/"+id, "")
						mu.Lock()
						if acked[id] = err == nil; err != nil {
							unknown[id] = true // the daemon was killed before it answered
						}
						mu.Unlock()
					}
				}
			})
		}
		<-enough
		if err := c.process.Process.Signal(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		_ = c.process.Wait()
		clients.Wait()
	}
	c := startChild(t, dir)
	there := c.all(t)
	for id := range sent {
		if !acked[id] && !unknown[id] && !there[id] {
			t.Errorf("%s was confirmed and is lost", id)
		}
	}
	for id := range acked {
		if acked[id] && there[id] {
			t.Errorf("%s was acked and is there again", id)
		}
	}
	t.Logf("%d sent, %d acked, %d left after three kills", len(sent), len(acked), len(there))
	if err := c.process.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := c.process.Wait(); err != nil {
		t.Errorf("an orderly stop: %v", err)
	}
	http.DefaultClient.CloseIdleConnections()
}

// all lists the messages that are not dead. There are no receivers, so a message that leaves a state comes to a
// later one of these; a peek at all states has another order, and would miss a message whose lease ends meanwhile.
func (c *child) all(t *testing.T) map[string]bool {
	t.Helper()
	there := make(map[string]bool)
	for _, state := range []string{"in flight", "delayed", "ready"} {
		maps.Copy(there, c.in(t, state))
	}
	return there
}

// in lists the messages in a state.
func (c *child) in(t *testing.T, state string) map[string]bool {
	t.Helper()
	request, err := http.NewRequest(http.MethodPost, c.base+"/v1/peek", strings.NewReader(fmt.Sprintf(`{"topic":"orders","states":[%q]}`, state)))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+c.token)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	there := make(map[string]bool)
	for lines := json.NewDecoder(response.Body); lines.More(); {
		var line struct {
			ID string `json:"msg_id"`
		}
		if err := lines.Decode(&line); err != nil {
			t.Fatal(err)
		}
		there[line.ID] = true
	}
	return there
}

func TestBadSettingsAreReportedInOneLine(t *testing.T) {
	var stdout, stderr bytes.Buffer
	if code := run([]string{"--profile=meganode"}, nil, &stdout, &stderr); code != 2 {
		t.Errorf("exit code %d", code)
	}
	if got := stderr.String(); got != "mailboxd: profile (--profile): invalid value \"meganode\"; want micronode or macronode\n" {
		t.Errorf("it says %q", got)
	}
	if code := run([]string{"--help"}, nil, &stdout, &stderr); code != 0 || !strings.Contains(stdout.String(), "--backend") {
		t.Errorf("help: exit code %d, %s", code, stdout.String())
	}
}
