package gates_test

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/internal/oap"
)

// secrets are texts that must not appear in the output of a daemon.
type secrets map[string]string

// leaks returns which secrets are in a text, in any of the forms in which programs print
// bytes.
func (s secrets) leaks(text string) []string {
	var found []string
	for name, secret := range s {
		for form, written := range map[string]string{
			"as it is": secret, "in hex": hex.EncodeToString([]byte(secret)), "as numbers": strings.Trim(fmt.Sprintf("%d", []byte(secret)), "[]"),
			"in base64": strings.TrimRight(base64.StdEncoding.EncodeToString([]byte(secret)), "="), "quoted": strings.Trim(fmt.Sprintf("%q", secret), `"`),
		} {
			if strings.Contains(text, written) {
				found = append(found, name+" "+form)
			}
		}
	}
	return found
}

// misuse sends the requests of careless and hostile clients, with secrets in every
// field. It returns the daemon's refusals.
func misuse(t *testing.T, d *daemon, s secrets) string {
	t.Helper()
	var answers strings.Builder
	tell := func(address, text string) {
		c := dial(t, address)
		_, _ = io.WriteString(c, text)
		_ = c.SetReadDeadline(time.Now().Add(2 * time.Second))
		answer, _ := io.ReadAll(c)
		answers.Write(answer)
		_ = c.Close()
	}
	request := func(token, path, body string) string {
		return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: mailboxd\r\nConnection: close\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s", path, token, len(body), body)
	}
	payload, attribute := s["payload"], s["attribute"]
	bad := s["bad token"]
	for _, body := range []string{
		payload, `{"topic":"orders","idem_key":"1","payload_b64":"` + payload + `"}`, `{"` + payload + `":1}`,
		`{"topic":"orders","idem_key":"1","payload_b64":"","attrs":{"a":["` + attribute + `"]}}`,
		`{"topic":"orders","idem_key":"1","payload_b64":"","payload_b64":"` + payload + `"}`,
		`{"topic":"orders","visibility_ms":"` + payload + `"}`, `{"topic":"orders","idem_key":"` + payload + "\xff" + `"}`,
		`{"topic":"orders","idem_key":"1","payload_b64":""} ` + payload,
	} {
		for _, path := range []string{"/v1/send", "/v1/recv", "/v1/caps/mint", "/v1/ack/01ARZ3NDEKTSV4RRFFQ69G5FAV", "/mailbox.v1.Mailbox/Send"} {
			tell(d.http, request(d.token, path, body))
			tell(d.http, request(bad, path, body))
			tell(d.http, request(d.token+"x", path, body))
		}
	}
	tell(d.http, "GET /"+bad+" HTTP/1.1\r\nHost: mailboxd\r\nConnection: close\r\n\r\n")
	tell(d.http, bad+"\r\n\r\n"+payload)
	tell(d.http, "POST /v1/send HTTP/1.1\r\nHost: mailboxd\r\nAuthorization "+bad+"\r\n\r\n")
	tell(d.http, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"+payload)
	tell(d.oap, bad+payload+strings.Repeat("x", 100))
	frame, err := startFrame(d.token)
	if err != nil {
		t.Fatal(err)
	}
	tell(d.oap, string(frame[:len(frame)-9])) // cut off
	tell(d.oap, string(frame)+string(frame))  // sent twice
	tell(d.oap, string(oap.AppendFrame(nil, &oap.Header{Flags: oap.Request | oap.Start, Code: oap.OpStart, Protocol: oap.ProtocolMailbox}, []byte(bad), []byte(payload))))
	tell(d.oap, string(frame)+string(oap.AppendFrame(nil, &oap.Header{Flags: oap.Request, Code: oap.OpSend, Protocol: oap.ProtocolMailbox, Correlation: 1}, nil, []byte(payload))))
	return answers.String()
}

// TestSecretsReachNoLogMetricOrCrash uses and misuses a daemon at debug level,
// and then crashes it: tokens, bodies, attributes and keys are nowhere in its
// output.
func TestSecretsReachNoLogMetricOrCrash(t *testing.T) {
	t.Setenv("GOTRACEBACK", "all")
	d := start(t, append(onDisk, "--read-timeout=1s", "--listen-metrics=127.0.0.1:0", "--log-level=debug")...)
	keys, err := os.ReadFile(filepath.Join(d.dir, "keys"))
	if err != nil {
		t.Fatal(err)
	}
	s := secrets{
		"payload": "canary-of-a-payload", "attribute": "canary-of-an-attribute", "bad token": "canary-of-a-token-that-is-bad", "reason": "canary-of-a-reason",
		"token": d.token, "middle of the token": d.token[40:80], "end of the token": d.token[len(d.token)-32:],
	}
	for i, word := range strings.Fields(string(keys)) {
		if len(word) >= 32 {
			s[fmt.Sprintf("word %d of the key file", i)] = word
		}
	}
	operator := openHTTP(t, d.http, d.token)
	var minted struct{ Token string }
	expires := fmt.Sprintf("mbx:exp=%s", time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
	if err := operator.post(t.Context(), "/v1/caps/mint", object{"caveats": []string{"mbx:op=send", "mbx:topic=orders", expires}}, &minted); err != nil {
		t.Fatal(err)
	}
	s["minted token"], s["end of the minted token"] = minted.Token, minted.Token[len(minted.Token)-32:]
	for _, kind := range surfaces {
		exchange(t, kind.open(t, d, d.token), "orders", []byte(s["payload"]))
		if _, err := kind.open(t, d, minted.Token).receive(t.Context(), "orders", wanted{most: 1, visibility: time.Minute}); err == nil {
			t.Errorf("%s: a token for sending has received", kind.name)
		}
	}
	if err := operator.post(t.Context(), "/v1/send", object{"topic": "orders", "idem_key": "1", "payload_b64": []byte(s["payload"]), "attrs": object{"a": s["attribute"]}}, nil); err != nil {
		t.Fatal(err)
	}
	got, err := operator.receive(t.Context(), "orders", wanted{most: 1, visibility: time.Minute})
	if err != nil || len(got) != 1 {
		t.Fatal(err)
	}
	if err := operator.post(t.Context(), "/v1/bury/"+got[0].id, object{"reason": "fatal", "error": s["reason"]}, nil); err != nil {
		t.Fatal(err)
	}
	answers := misuse(t, d, s)
	var open strings.Builder
	for _, address := range []string{d.http + "/metrics", d.http + "/readyz", d.metrics + "/metrics"} {
		response, err := http.Get("http://" + address)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(&open, response.Body)
		_ = response.Body.Close()
	}
	http.DefaultClient.CloseIdleConnections()
	d.Signal(t, syscall.SIGQUIT)
	<-d.Ended()
	log := d.Stderr.String()
	if !strings.Contains(log, "goroutine ") || strings.Count(log, "auth.denied") < 3 {
		t.Errorf("the daemon did not log refusals or did not crash: %.2000s", log)
	}
	for where, text := range map[string]string{
		"the log and the crash": log, "the greeting": d.Stdout.String(), "metrics and readiness": open.String(), "answers to refusals": answers,
	} {
		for _, leak := range s.leaks(text) {
			t.Errorf("%s: the %s is there", where, leak)
		}
	}
	t.Logf("%d secrets, none of them in %d KiB of log and crash, %d KiB of metrics, %d KiB of refusals", len(s), len(log)>>10, open.Len()>>10, len(answers)>>10)
}
