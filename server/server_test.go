package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/keyring"
	"github.com/mailboxmq/mailbox/server"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// running is a daemon in this process.
type running struct {
	*server.Server
	t      testing.TB
	log    *lockedBuffer
	client *http.Client
	base   string
	stop   context.CancelFunc
	done   chan error
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// start runs a daemon on free ports until the test ends, or halt is called.
func start(t testing.TB, config server.Config) *running {
	t.Helper()
	return startOn(t, config, nil)
}

// startOn starts a daemon on a backend, or on that of its configuration if it is nil.
func startOn(t testing.TB, config server.Config, opener driver.Opener) *running {
	t.Helper()
	if config.Listen == "" {
		config.Listen = "127.0.0.1:0"
	}
	if config.ListenOAP == "" {
		config.ListenOAP = "127.0.0.1:0"
	}
	r := &running{t: t, log: new(lockedBuffer), client: &http.Client{Transport: &http.Transport{}}, done: make(chan error, 1)}
	var err error
	r.Server, err = server.New(config, &server.Options{Opener: opener, Logger: slog.New(slog.NewJSONHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r.stop = cancel
	go func() { r.done <- r.Run(ctx) }()
	select {
	case <-r.Started():
	case err := <-r.done:
		cancel()
		t.Fatalf("the daemon did not start: %v", err)
	}
	r.base = "http://" + r.Address(server.HTTP)
	t.Cleanup(func() { r.halt() })
	return r
}

// halt stops the daemon and waits for it. It may be called repeatedly.
func (r *running) halt() {
	r.t.Helper()
	r.stop()
	if r.done == nil {
		return
	}
	if err := <-r.done; err != nil {
		r.t.Errorf("run: %v", err)
	}
	r.done = nil
	r.client.CloseIdleConnections()
}

func (r *running) post(token capability.Token, path, body string) (int, map[string]any) {
	r.t.Helper()
	request, err := http.NewRequest(http.MethodPost, r.base+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+token.Reveal())
	response, err := r.client.Do(request)
	if err != nil {
		r.t.Fatal(err)
	}
	defer response.Body.Close()
	var fields map[string]any
	if err := json.NewDecoder(response.Body).Decode(&fields); err != nil {
		r.t.Fatal(err)
	}
	return response.StatusCode, fields
}

func (r *running) send(queue, key, payload string) string {
	r.t.Helper()
	status, fields := r.post(r.OperatorToken(), "/v1/send", fmt.Sprintf(`{"topic":%q,"idem_key":%q,"payload_b64":%q}`, queue, key, payload))
	if status != http.StatusOK {
		r.t.Fatalf("send: %d %v", status, fields)
	}
	return fields["msg_id"].(string)
}

func (r *running) receive(queue string) []any {
	r.t.Helper()
	status, fields := r.post(r.OperatorToken(), "/v1/recv", fmt.Sprintf(`{"topic":%q,"visibility_ms":60000}`, queue))
	if status != http.StatusOK {
		r.t.Fatalf("receive: %d %v", status, fields)
	}
	return fields["messages"].([]any)
}

func TestFirstStartMakesPrivateKeysAndToken(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	first := start(t, server.Config{DataDir: dir})
	id := first.send("orders", "k", "SGk=")
	for _, name := range []string{"keys", "operator.token", "revocations"} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
	token, err := capability.ReadTokenFile(filepath.Join(dir, "operator.token"))
	if err != nil || !token.Equal(first.OperatorToken()) {
		t.Errorf("the file has another token: %v", err)
	}
	first.halt()
	second := start(t, server.Config{DataDir: dir})
	if !second.OperatorToken().Equal(token) {
		t.Error("the second start made another token")
	}
	if got := second.receive("orders"); len(got) != 1 || got[0].(map[string]any)["msg_id"] != id {
		t.Errorf("after a restart: %v", got)
	}
}

// A restart does not lock out the operator after the key of the operator's token was retired.
func TestStartAfterKeyRetirementRenewsOperatorToken(t *testing.T) {
	dir := t.TempDir()
	first := start(t, server.Config{DataDir: dir})
	old := first.OperatorToken()
	first.halt()
	path := filepath.Join(dir, "keys")
	ring, err := keyring.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	leaked := ring.Current().ID()
	if err := errors.Join(ring.Rotate(keyring.NewKey()), ring.Retire(leaked, time.Now()), ring.WriteFile(path)); err != nil {
		t.Fatal(err)
	}
	second := start(t, server.Config{DataDir: dir})
	for _, try := range []struct {
		token capability.Token
		want  int
	}{{old, http.StatusUnauthorized}, {second.OperatorToken(), http.StatusOK}} {
		if status, fields := second.post(try.token, "/v1/traits", `{"topic":"orders"}`); status != try.want {
			t.Errorf("got %d %v, want %d", status, fields, try.want)
		}
	}
}

// TestDeadLettersSurviveMacronodeRestart is the second half of gate G-6. That they
// survive a kill is tested by TestG6DeadLettersSurviveKill.
func TestDeadLettersSurviveMacronodeRestart(t *testing.T) {
	dir := t.TempDir()
	first := start(t, server.Config{DataDir: dir})
	id := first.send("orders", "k", "SGk=")
	first.receive("orders")
	if status, fields := first.post(first.OperatorToken(), "/v1/bury/"+id, `{"reason":"fatal","error":"no such order","error_type":"main.Lost"}`); status != 200 {
		t.Fatal(fields)
	}
	_, letter := first.post(first.OperatorToken(), "/v1/dlq/list", `{"topic":"orders"}`)
	for field, want := range map[string]any{
		"msg_id": id, "payload_b64": "SGk=", "reason": "fatal", "last_error": "no such order", "error_type": "main.Lost", "attempt": 1.0, "idem_key": "k",
	} {
		if letter[field] != want {
			t.Errorf("%s is %v, want %v", field, letter[field], want)
		}
	}
	first.halt()
	second := start(t, server.Config{DataDir: dir})
	if _, again := second.post(second.OperatorToken(), "/v1/dlq/list", `{"topic":"orders"}`); !reflect.DeepEqual(again, letter) {
		t.Errorf("after a restart the dead letter is %v, was %v", again, letter)
	}
	if _, fields := second.post(second.OperatorToken(), "/v1/dlq/reprocess", `{"topic":"orders"}`); fields["moved"] != 1.0 {
		t.Errorf("redrive: %v", fields)
	}
}

// TestAmnesiaWritesNoFile is the first half of gate G-6: a micronode that is used
// leaves nothing in any directory that it could have used.
func TestAmnesiaWritesNoFile(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for _, variable := range []string{"HOME", "TMPDIR", "XDG_STATE_HOME", "STATE_DIRECTORY"} {
		t.Setenv(variable, dir)
	}
	r := start(t, server.Config{Profile: server.Micronode})
	for i := range 100 {
		id := r.send("orders", fmt.Sprint(i), "SGk=")
		r.receive("orders")
		r.post(r.OperatorToken(), "/v1/bury/"+id, `{"reason":"fatal"}`)
	}
	if status, fields := r.post(r.OperatorToken(), "/v1/caps/revoke", fmt.Sprintf(`{"token_id":%q}`, "01ARZ3NDEKTSV4RRFFQ69G5FAV")); status != 200 {
		t.Errorf("revoke: %v", fields)
	}
	if text := r.get("/readyz"); !strings.Contains(text, `"dlq_profile":"ephemeral"`) {
		t.Errorf("readiness does not report dead letters as ephemeral: %s", text)
	}
	r.halt()
	_ = filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if path != dir {
			t.Errorf("there is %s: %v", path, err)
		}
		return nil
	})
}

func (r *running) get(path string) string {
	r.t.Helper()
	request, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet, r.base+path, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+r.OperatorToken().Reveal())
	response, err := r.client.Do(request)
	if err != nil {
		r.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return string(text)
}

// TestDrainLosesNothingThatWasConfirmed is SVC-9: a daemon is told to stop while
// many clients send; every confirmed message is there afterwards.
func TestDrainLosesNothingThatWasConfirmed(t *testing.T) {
	dir := t.TempDir()
	r := start(t, server.Config{DataDir: dir, DrainTimeout: 5 * time.Minute})
	var mu sync.Mutex
	confirmed, enough := make(map[string]bool), make(chan struct{})
	var senders sync.WaitGroup
	token := r.OperatorToken()
	waiting := make(chan string, 1)
	if status, _, err := tryPost(r, token, "/v1/send/batch", `{"topic":"empty","messages":[]}`); err != nil || status != http.StatusOK {
		t.Fatal(status, err)
	}
	go func() { // a waiting receive is answered, not cut off
		status, _, err := tryPost(r, token, "/v1/recv", `{"topic":"empty","wait_ms":600000}`)
		waiting <- fmt.Sprint(status, err)
	}()
	for sender := range 8 {
		senders.Go(func() {
			for i := 0; ; i++ {
				status, fields, err := tryPost(r, token, "/v1/send", fmt.Sprintf(`{"topic":"orders","idem_key":"%d-%d","payload_b64":""}`, sender, i))
				if err != nil || status == http.StatusServiceUnavailable {
					return // it is stopping, or gone
				}
				mu.Lock()
				if confirmed[fields["msg_id"].(string)] = true; len(confirmed) == 200 {
					close(enough)
				}
				mu.Unlock()
			}
		})
	}
	<-enough
	began := time.Now()
	r.halt()
	took := time.Since(began)
	senders.Wait()
	if took > time.Minute {
		t.Errorf("draining took %v", took)
	}
	if got := <-waiting; got != "200 <nil>" {
		t.Errorf("the receive that waited got %s", got)
	}
	again := start(t, server.Config{DataDir: dir})
	if _, stats := again.post(again.OperatorToken(), "/v1/stats", `{"topic":"orders"}`); stats["ready"] != float64(len(confirmed)) {
		// Messages that were sent and not confirmed may be there too.
		if ready, _ := stats["ready"].(float64); int(ready) < len(confirmed) || int(ready) > len(confirmed)+8 {
			t.Errorf("%d messages were confirmed, and %v are ready", len(confirmed), stats["ready"])
		}
	}
	t.Logf("%d messages confirmed, drained in %v", len(confirmed), took)
}

// tryPost is post for a daemon that may have stopped.
func tryPost(r *running, token capability.Token, path, body string) (int, map[string]any, error) {
	request, err := http.NewRequest(http.MethodPost, r.base+path, strings.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	request.Header.Set("Authorization", "Bearer "+token.Reveal())
	response, err := r.client.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	var fields map[string]any
	err = json.NewDecoder(response.Body).Decode(&fields)
	return response.StatusCode, fields, err
}

// TestNoSecretReachesLogOrMetrics sends canaries through a whole daemon.
func TestNoSecretReachesLogOrMetrics(t *testing.T) {
	r := start(t, server.Config{Profile: server.Micronode, LogLevel: "debug"})
	id := r.send("orders", "canary-key", "Y2FuYXJ5LXBheWxvYWQ=")
	r.receive("orders")
	r.post(r.OperatorToken(), "/v1/nack/"+id, `{"reason":"canary-reason"}`)
	r.post(r.OperatorToken(), "/v1/send", `{"canary-field":1}`)
	narrowed, err := r.OperatorToken().Narrow(capability.Operations(capability.OpStats))
	if err != nil {
		t.Fatal(err)
	}
	r.post(narrowed, "/v1/send", `{"topic":"orders","idem_key":"canary","payload_b64":""}`)
	figures := r.get("/metrics")
	r.halt()
	log := r.log.String()
	if !strings.Contains(log, "auth.denied") || !strings.Contains(log, "corr_id") {
		t.Errorf("the log does not name the refused request: %s", log)
	}
	for _, secret := range []string{"canary", "Y2FuYXJ5", r.OperatorToken().Reveal(), narrowed.Reveal(), r.OperatorToken().Reveal()[30:70]} {
		if strings.Contains(log, secret) || strings.Contains(figures, secret) {
			t.Errorf("%.12s… is in the log or the metrics", secret)
		}
	}
}

func TestReloadChangesLiveSettings(t *testing.T) {
	dir := t.TempDir()
	config := server.Config{DataDir: dir, Listen: "127.0.0.1:0", ListenOAP: server.Off}
	r := start(t, config)
	id := r.send("orders", "k", "SGk=")
	r.receive("orders")
	config.VisibilityMin = 10 * time.Second
	config.VisibilityDefault = 20 * time.Second
	if err := r.Reload(config); err != nil {
		t.Fatal(err)
	}
	if status, fields := r.post(r.OperatorToken(), "/v1/recv", `{"topic":"orders","visibility_ms":9999}`); status != 400 {
		t.Errorf("the new limit does not hold: %d %v", status, fields)
	}
	if status, fields := r.post(r.OperatorToken(), "/v1/ack/"+id, ""); status != 200 {
		t.Errorf("ack of a message in flight before the reload: %v", fields)
	}
	bad := config
	bad.MaxDeliveries = -2
	if err := r.Reload(bad); err == nil {
		t.Error("a bad configuration was accepted")
	}
	// A key that another process has added counts after a reload.
	ring, err := keyring.ReadFile(filepath.Join(dir, "keys"))
	if err != nil {
		t.Fatal(err)
	}
	if err := ring.Rotate(keyring.NewKey()); err != nil {
		t.Fatal(err)
	}
	if err := ring.WriteFile(filepath.Join(dir, "keys")); err != nil {
		t.Fatal(err)
	}
	token, err := ring.Mint("", capability.AllOperations(), capability.Queues(capability.AnyQueue()), capability.ExpiresAt(time.Now().Add(time.Hour)))
	if err != nil {
		t.Fatal(err)
	}
	if status, _ := r.post(token, "/v1/stats", `{"topic":"orders"}`); status != 401 {
		t.Errorf("before the reload: %d", status)
	}
	if err := r.Reload(config); err != nil {
		t.Fatal(err)
	}
	if status, fields := r.post(token, "/v1/stats", `{"topic":"orders"}`); status != 200 {
		t.Errorf("after the reload: %d %v", status, fields)
	}
}

func parseToken(t *testing.T, text any) capability.Token {
	t.Helper()
	token, err := capability.Parse(fmt.Sprint(text))
	if err != nil {
		t.Fatal(err)
	}
	return token
}
