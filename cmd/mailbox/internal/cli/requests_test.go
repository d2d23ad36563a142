package cli_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/mailboxmq/mailbox/server"
)

// post sends a request to the HTTP API with the operator's token, and returns the answer.
func (d *daemon) post(t *testing.T, path, body string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+d.Address(server.HTTP)+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+d.OperatorToken().Reveal())
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s, %v", path, answer.Status, err)
	}
	return string(text)
}

func TestRequestsAreListedShownAndCancelled(t *testing.T) {
	d := start(t, onDisk())
	if got := d.must(t, "requests", "ls"); got != "" {
		t.Errorf("without requests: %q", got)
	}
	d.post(t, "/v1/replies/create", `{"slot":"first"}`)
	d.post(t, "/v1/replies/create", `{"slot":"second"}`)
	d.post(t, "/v1/replies/resolve", `{"slot":"second","payload_b64":"eWVz"}`)
	if got := strings.Fields(d.must(t, "requests", "ls")); len(got) < 6 || got[0] != "SLOT" || got[4] != "first" || got[5] != "pending" {
		t.Errorf("ls: %q", got)
	}
	if got := d.must(t, "requests", "show", "second"); !strings.Contains(got, "resolved") || !strings.Contains(got, "yes") {
		t.Errorf("show: %q", got)
	}
	if got := d.must(t, "requests", "show", "second", "--json"); !strings.Contains(got, `"slot":"second","state":"resolved","body":"yes"`) {
		t.Errorf("show: %q", got)
	}
	if got := d.must(t, "requests", "cancel", "first"); got != "first\tcancelled" {
		t.Errorf("cancel: %q", got)
	}
	if got := d.must(t, "requests", "ls", "--json"); !strings.Contains(got, `"slot":"first","state":"cancelled"`) || strings.Contains(got, "yes") {
		t.Errorf("ls: %q", got)
	}
	d.mailbox(t, "requests", "cancel", "second").wantCode(t, 7, "second was answered before")
	d.mailbox(t, "requests", "show", "third").wantCode(t, 5, "third")
}
