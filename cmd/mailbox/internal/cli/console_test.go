package cli_test

import (
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"testing"

	"github.com/mailboxmq/mailbox/server"
)

func TestConsoleAddressSignsInOnce(t *testing.T) {
	d := start(t, inMemory())
	r := d.mailbox(t, "console", "--read-only")
	address := strings.TrimSpace(r.stdout)
	page, code, ok := strings.Cut(address, "#")
	if r.code != 0 || !ok || page != "http://"+d.Address(server.HTTP)+"/console/login" {
		t.Fatalf("got %+v", r)
	}
	for _, want := range []string{"is read-only", "used or is older than a minute"} {
		jar, err := cookiejar.New(nil)
		if err != nil {
			t.Fatal(err)
		}
		client := &http.Client{Jar: jar}
		response, err := client.PostForm(page, url.Values{"token": {code}, "next": {"access"}})
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("the page lacks %q: %v %s", want, err, text)
		}
		client.CloseIdleConnections()
	}
	http.DefaultClient.CloseIdleConnections()
}

func TestConsoleThatIsOffIsSaidSo(t *testing.T) {
	config := inMemory()
	config.ConsolePath = server.Off
	d := start(t, config)
	d.mailbox(t, "console").wantCode(t, 1, "serves no console at /console/")
	d.mailbox(t, "console", "--path", "console").wantCode(t, 2, "--path")
}
