package server_test

import (
	"crypto/tls"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mailboxmq/mailbox/internal/keyring"
	"github.com/mailboxmq/mailbox/server"
)

// A logLine is one line of a daemon's log about a setting.
type logLine struct {
	Level, Msg, Key, From, To string
	AppliesTo                 string `json:"applies_to"`
	Changed                   int    `json:"changed"`
	NeedRestart               int    `json:"need_restart"`
}

// reloaded reloads the daemon with flags, and returns the lines that it logged.
func (r *running) reloaded(args ...string) (lines []logLine) {
	r.t.Helper()
	config, err := server.Load(args, nil, io.Discard)
	if err != nil {
		r.t.Fatal(err)
	}
	skip := len(r.log.String())
	if err := r.Reload(config); err != nil {
		r.t.Fatal(err)
	}
	for text := range strings.Lines(r.log.String()[skip:]) {
		var line logLine
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			r.t.Fatal(err)
		}
		if line.Key != "" || line.Msg == "reloaded" {
			lines = append(lines, line)
		}
	}
	return lines
}

func TestReloadLogsChangesAndPendingRestarts(t *testing.T) {
	same := []string{"--data-dir=" + t.TempDir(), "--listen=127.0.0.1:0", "--listen-oap=127.0.0.1:0", "--backend=memory:"}
	config, err := server.Load(same, nil, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	r := start(t, config)
	if got := r.reloaded(same...); len(got) != 1 || got[0].Changed != 0 || got[0].NeedRestart != 0 {
		t.Errorf("nothing changed: logged %+v", got)
	}
	got := r.reloaded(append(same, "--max-wait=30s", "--global-inflight=0", "--max-conns=7", "--max-attempts=9", "--backend=redis://user:canary@127.0.0.1:1")...)
	want := []logLine{
		{Level: "WARN", Msg: "setting.needs_restart", Key: "backend"},
		{Level: "WARN", Msg: "setting.needs_restart", Key: "listen.max_conns", From: "20000", To: "7"},
		{Level: "INFO", Msg: "setting.changed", Key: "mailbox.global_inflight", From: "262144", To: "0"},
		{Level: "INFO", Msg: "setting.changed", Key: "mailbox.max_wait", From: "20m", To: "30s"},
		{Level: "WARN", Msg: "setting.needs_restart", Key: "mailbox.max_attempts", From: "5", To: "9", AppliesTo: "queues created after the restart; existing queues keep theirs"},
		{Level: "INFO", Msg: "reloaded", Changed: 2, NeedRestart: 3},
	}
	if len(got) != len(want) {
		t.Fatalf("logged %+v, want %+v", got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("line %d is %+v, want %+v", i, got[i], want[i])
		}
	}
	if strings.Contains(r.log.String(), "canary") {
		t.Error("the log contains the password")
	}
	if c := r.Config(); c.MaxWait.Seconds() != 30 || c.MaxConnections != 20_000 || c.MaxDeliveries != 5 {
		t.Errorf("the configuration is %+v", c)
	}
}

// DLQ-1: a queue keeps the delivery limit that it was created with, and a queue that
// is created later has the new default.
func TestExistingQueueKeepsLimitWhenDefaultChanges(t *testing.T) {
	config := server.Config{DataDir: t.TempDir(), MaxDeliveries: 5}
	r := start(t, config)
	r.send("old", "k", "SGk=")
	r.halt()
	config.MaxDeliveries = 9
	r = start(t, config)
	r.send("new", "k", "SGk=")
	for queue, want := range map[string]float64{"old": 5, "new": 9} {
		status, fields := r.post(r.OperatorToken(), "/v1/queues/get", `{"topic":"`+queue+`"}`)
		inForce, _ := fields["config"].(map[string]any)
		if status != 200 || inForce["max_attempts"] != want {
			t.Errorf("%s: %d %v, want max_attempts %v", queue, status, fields, want)
		}
	}
}

func TestFailedReloadChangesNothing(t *testing.T) {
	dir := t.TempDir()
	certFile, keyFile := certify(t, dir, "first")
	credentials := filepath.Join(dir, "credentials")
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(credentials, "")
	config := server.Config{
		DataDir: filepath.Join(dir, "data"), Backend: "memory:", Listen: "127.0.0.1:0", TLSCert: certFile, TLSKey: keyFile,
		SQS: server.SQSConfig{CredentialsFile: credentials},
	}
	r := start(t, config)
	r.base = "https://" + r.Address(server.HTTP)
	served := ""
	r.client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{
		InsecureSkipVerify: true,
		VerifyConnection: func(s tls.ConnectionState) error {
			served = s.PeerCertificates[0].Subject.CommonName
			return nil
		},
	}}}
	second, secondKey := certify(t, dir, "second")
	for from, to := range map[string]string{second: certFile, secondKey: keyFile} {
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	keys := filepath.Join(config.DataDir, "keys")
	_, err := keyring.Change(t.Context(), keys, func(ring *keyring.Ring) error { return ring.Rotate(keyring.NewKey()) })
	if err != nil {
		t.Fatal(err)
	}
	expect := func(when, certificate string, keys int) {
		t.Helper()
		status, fields := r.post(r.OperatorToken(), "/v1/keys/list", "{}")
		if list, _ := fields["keys"].([]any); status != http.StatusOK || served != certificate || len(list) != keys {
			t.Errorf("%s: %d, certificate %q, keys %v; want %q and %d keys", when, status, served, fields, certificate, keys)
		}
	}
	write(credentials, "broken")
	if err := r.Reload(config); err == nil {
		t.Error("broken credentials were accepted")
	}
	expect("after broken credentials", "first", 1)
	write(credentials, "")
	queue := server.SQSQueue{Name: "jobs", Attributes: map[string]string{"VisibilityTimeout": "never"}}
	broken := config
	broken.SQS.Queues = []server.SQSQueue{queue}
	if err := r.Reload(broken); err == nil {
		t.Error("a broken queue was accepted")
	}
	expect("after a broken queue", "first", 1)
	if err := r.Reload(config); err != nil {
		t.Fatal(err)
	}
	expect("after the reload", "second", 2)
}
