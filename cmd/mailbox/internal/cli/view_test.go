package cli

import (
	"errors"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/server"
)

func TestDataDirectoryMatchesDaemon(t *testing.T) {
	for _, environ := range []map[string]string{
		{"HOME": "/homedir"},
		{"HOME": "/homedir", "XDG_STATE_HOME": "/state"},
		{"HOME": "/", "XDG_STATE_HOME": ""},
		{"HOME": "/homedir", "STATE_DIRECTORY": "/var/lib/private/mailboxd"},
	} {
		for _, name := range []string{"HOME", "XDG_STATE_HOME", "STATE_DIRECTORY"} {
			t.Setenv(name, environ[name])
		}
		s := &shell{environ: environ}
		if theirs, ours := server.Defaults(server.Macronode), s.dataDirs()[0]; theirs.DataDir != ours {
			t.Errorf("with %v the daemon uses %s, and the CLI %s", environ, theirs.DataDir, ours)
		}
	}
	defaults := server.Defaults(server.Macronode)
	if defaults.Listen != defaultAddr || defaults.ListenOAP != defaultOAPAddr {
		t.Errorf("the daemon listens on %s and %s", defaults.Listen, defaults.ListenOAP)
	}
}

func TestProgressShowsRemainingTime(t *testing.T) {
	began := time.Now()
	p := &progress{what: "sending", total: 100, began: began, done: 50}
	if got := p.text(began.Add(10 * time.Second)); got != "sending [===============               ]  50%, 10s left" {
		t.Errorf("got %q", got)
	}
	p.total = 0
	if got := p.text(began.Add(10 * time.Second)); got != "sending 50 (5/s)" {
		t.Errorf("got %q", got)
	}
}

func TestErrorsOfEveryCodeAreExplained(t *testing.T) {
	for name, code := range kinds {
		f := explain(&driver.Error{Code: code, Queue: "q", Detail: "because"})
		if f.sentence == "" || f.exit < 1 || codeName(code) != name {
			t.Errorf("%s is explained as %+v", name, f)
		}
	}
	if f := explain(driver.NewBatchError([]error{nil, driver.ErrFull})); f.exit != exitFull {
		t.Errorf("a batch is explained as %+v", f)
	}
	if f := explain(errors.New("odd")); f.exit != exitFailed || f.sentence != "odd" {
		t.Errorf("an odd error is explained as %+v", f)
	}
}

func TestByteSizesAreParsed(t *testing.T) {
	for text, want := range map[string]byteSize{"0": 0, "12": 12, "64KiB": 64 << 10, "3MiB": 3 << 20, "1GiB": 1 << 30} {
		var got byteSize
		if err := got.Set(text); err != nil || got != want {
			t.Errorf("%s is %d, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "-1", "1MB", "x", "99999999999GiB"} {
		if err := new(byteSize).Set(text); err == nil {
			t.Errorf("%q is a size", text)
		}
	}
}
