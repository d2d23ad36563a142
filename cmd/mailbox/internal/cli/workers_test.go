package cli_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/mailboxmq/mailbox/server"
)

// TestWorkersAreListedWithTheirNames is CON-2 at the command line: names of receivers stay text.
func TestWorkersAreListedWithTheirNames(t *testing.T) {
	d := start(t, onDisk())
	if got := d.must(t, "workers"); got != "" {
		t.Errorf("without workers: %q", got)
	}
	id := d.must(t, "send", "orders", "x")
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+d.Address(server.HTTP)+"/v1/recv", strings.NewReader(`{"topic":"orders","visibility_ms":600000}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+d.OperatorToken().Reveal())
	r.Header.Set("X-Mailbox-Worker", "billing@host-7 ☃")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		t.Fatal(answer.Status)
	}
	if got := d.must(t, "workers", "orders"); !strings.Contains(got, "billing@host-7 ☃") || !strings.Contains(got, "http 127.0.0.1") || !strings.Contains(got, strings.TrimSpace(id)) {
		t.Errorf("%q", got)
	}
	if got := d.must(t, "workers"); !strings.Contains(got, "billing@host-7 ☃") || strings.Contains(got, strings.TrimSpace(id)) {
		t.Errorf("%q", got)
	}
	if got := d.must(t, "workers", "orders", "--json"); !strings.Contains(got, `{"queue":"orders","name":"billing@host-7 ☃","protocol":"http","address":"127.0.0.1"`) || !strings.Contains(got, `"held":[{"id":"`+strings.TrimSpace(id)+`"`) {
		t.Errorf("%q", got)
	}
	if got := d.must(t, "workers", "missing"); got != "" {
		t.Errorf("of a queue that does not exist: %q", got)
	}
}
