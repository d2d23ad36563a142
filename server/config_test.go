package server_test

import (
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/server"
)

func writeFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "mailboxd.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestFlagsWinOverVariablesOverTheFileOverDefaults(t *testing.T) {
	path := writeFile(t, "profile = \"micronode\"\n[mailbox]\nmax_attempts = 7\nt_replay = \"10m\"\ndefault_visibility = \"30s\"\n[limits]\nmax_payload_bytes = \"64KiB\"\n")
	environ := []string{"PATH=/bin", "MAILBOXD_CONFIG=" + path, "MAILBOXD_MAX_ATTEMPTS=8", "MAILBOXD_T_REPLAY=20m"}
	config, err := server.Load([]string{"--t-replay=30m", "--insecure-listen"}, environ, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	daemon, err := server.New(config, nil)
	if err != nil {
		t.Fatal(err)
	}
	got := daemon.Config()
	if got.Profile != server.Micronode || !*got.Amnesia || got.MaxAttempts != 8 || got.ReplayWindow != 30*time.Minute ||
		got.VisibilityDefault != 30*time.Second || got.MaxPayloadBytes != 64<<10 || !got.InsecureListen || got.BackoffMax != time.Minute {
		t.Errorf("got %+v", got)
	}
}

func TestBadSettingsStopTheStartWithASentence(t *testing.T) {
	for _, test := range []struct {
		args    []string
		environ []string
		file    string
		want    string
	}{
		{args: []string{"--profile=meganode"}, want: "profile is to be"},
		{args: []string{"orders"}, want: "means nothing"},
		{args: []string{"--t-replay=soon"}, want: "the flag --t-replay is to be a duration"},
		{args: []string{"--t-replay=1s"}, want: "mailbox.t_replay is 1s"},
		{args: []string{"--cap-cache-ttl=4s"}, want: "between 5s and 2m0s"},
		{args: []string{"--cap-cache-ttl=121s"}, want: "between 5s and 2m0s"},
		{args: []string{"--visibility-min=10s"}, want: "mailbox.default_visibility is 5s"},
		{args: []string{"--backoff-max=1ms"}, want: "mailbox.backoff_max"},
		{args: []string{"--max-attempts=-1"}, want: "mailbox.max_attempts is -1"},
		{args: []string{"--max-messages=257"}, want: "between 1 and 256"},
		{args: []string{"--listen=0.0.0.0:80"}, want: "plaintext"},
		{args: []string{"--listen-oap=:80"}, want: "plaintext"},
		{args: []string{"--listen=here"}, want: "HOST:PORT"},
		{args: []string{"--listen=off", "--listen-oap=off"}, want: "nobody could reach"},
		{args: []string{"--tls-cert=x"}, want: "go together"},
		{args: []string{"--tls-client-ca=x"}, want: "needs tls.cert"},
		{args: []string{"--backend=disk:x", "--amnesia"}, want: "which amnesia forbids"},
		{args: []string{"--backend=postgres:x"}, want: "is not known"},
		{args: []string{"--backend=disk:"}, want: "wants a directory"},
		{args: []string{"--log-level=loud"}, want: "log.level"},
		{args: []string{"--max-payload-bytes=2MiB"}, want: "limits.max_payload_bytes"},
		{environ: []string{"MAILBOXD_ATTEMPTS=5"}, want: "MAILBOXD_ATTEMPTS is not known"},
		{environ: []string{"MAILBOXD_AMNESIA=maybe"}, want: "true or false"},
		{file: "max_attempts = 5", want: "the key max_attempts is not known"},
		{file: "[mailbox]\nmax_attempts = \"five\"", want: "is to be a whole number"},
		{file: "[mailbox]\nmax_attempts = 5\nmax_attempts = 6", want: "is no TOML"},
		{file: "[mailbox\n", want: "is no TOML: line 1"},
		{file: "[mailbox]\nmax_attempts = 1.5", want: "is to be a text, a whole number"},
	} {
		args := test.args
		if test.file != "" {
			args = append(args, "--config="+writeFile(t, test.file))
		}
		_, err := server.Load(args, test.environ, io.Discard)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v %v %q: got %v, want %q", test.args, test.environ, test.file, err, test.want)
		}
	}
	if _, err := server.Load([]string{"--config=nowhere.toml"}, nil, io.Discard); err == nil || !strings.Contains(err.Error(), "cannot be read") {
		t.Errorf("a file that is not there: %v", err)
	}
}

func TestErrorsDoNotRepeatPasswords(t *testing.T) {
	for _, backend := range []string{"redis://user:canary@%zz", "redis://user:canary@", "rediss:canary"} {
		_, err := server.Load([]string{"--backend=" + backend}, nil, io.Discard)
		if err == nil || strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: %v", backend, err)
		}
	}
}

func TestHelpListsEverySetting(t *testing.T) {
	var usage strings.Builder
	if _, err := server.Load([]string{"--help"}, nil, &usage); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("got %v", err)
	}
	seen := make(map[string]bool)
	for _, s := range server.Settings() {
		if !strings.Contains(usage.String(), "--"+s.Flag+" ") || !strings.Contains(usage.String(), s.Variable) {
			t.Errorf("%s is not explained", s.Key)
		}
		if seen[s.Key] || seen[s.Variable] {
			t.Errorf("%s is there twice", s.Key)
		}
		seen[s.Key], seen[s.Variable] = true, true
	}
}

func TestProfilesDiffer(t *testing.T) {
	micro, macro := server.Defaults(server.Micronode), server.Defaults(server.Macronode)
	if !*micro.Amnesia || *macro.Amnesia {
		t.Error("amnesia is that of the micronode")
	}
	off := false
	daemon, err := server.New(server.Config{Profile: server.Micronode, Amnesia: &off}, nil)
	if err != nil || *daemon.Config().Amnesia || daemon.Config().Backend != "memory:" {
		t.Errorf("an explicit setting is to win: %v", err)
	}
}
