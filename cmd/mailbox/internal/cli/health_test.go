package cli_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/mailboxmq/mailbox/server"
)

func TestHealthNeedsNoToken(t *testing.T) {
	d := start(t, inMemory())
	environ := []string{"MAILBOX_ADDR=" + d.Address(server.HTTP)}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"health"}, "alive\n"},
		{[]string{"health", "--ready"}, "ready\n"},
	} {
		if r := mailbox(t, environ, c.args...); r.code != 0 || r.stdout != c.want {
			t.Errorf("%v: %+v", c.args, r)
		}
	}
	if r := mailbox(t, environ, "health", "--json"); r.code != 0 || !strings.Contains(r.stdout, `{"status":"alive","version":`) {
		t.Errorf("in JSON: %+v", r)
	}
	d.stop()
	mailbox(t, environ, "health").wantCode(t, 3, "no daemon answers")
}

func TestHealthFailsWhenDaemonIsNotReady(t *testing.T) {
	draining := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = w.Write([]byte(`{"ready":false,"missing":["not_draining"]}`))
	}))
	defer draining.Close()
	r := mailbox(t, []string{"MAILBOX_ADDR=" + draining.URL}, "health", "--ready")
	r.wantCode(t, 1, "is not ready: not_draining", "it is being stopped")
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	mailbox(t, []string{"MAILBOX_ADDR=" + other.URL}, "health").wantCode(t, 3, "is not mailboxd")
}

func TestCapTokenPrintsTokenInUse(t *testing.T) {
	d := start(t, inMemory())
	if got := d.must(t, "cap", "token"); got != d.OperatorToken().Reveal() {
		t.Errorf("printed %q", got)
	}
	mailbox(t, []string{"HOME=" + t.TempDir()}, "cap", "token").wantCode(t, 4, "there is no token")
}

func TestDoctorShowsBothVersions(t *testing.T) {
	d := start(t, inMemory())
	r := d.mailbox(t, "doctor")
	if !strings.Contains(r.stdout, "ok       version    the daemon is ") || !strings.Contains(r.stdout, ", this is v0.0.0-test.") {
		t.Errorf("no versions in\n%s", r.stdout)
	}
}
