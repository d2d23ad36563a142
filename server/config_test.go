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

	"github.com/mailboxmq/mailbox/driver"
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

func TestFlagsWinOverVariablesFileAndDefaults(t *testing.T) {
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
	if got.Profile != server.Micronode || !*got.Amnesia || got.MaxDeliveries != 8 || got.DedupWindow != 30*time.Minute ||
		got.VisibilityDefault != 30*time.Second || got.MaxBodyBytes != 64<<10 || !got.InsecureListen || got.BackoffMax != time.Minute {
		t.Errorf("got %+v", got)
	}
}

func TestBadSettingsAreRefusedWithReason(t *testing.T) {
	for _, test := range []struct {
		args    []string
		environ []string
		file    string
		want    string
	}{
		{args: []string{"--profile=meganode"}, want: `profile (--profile): invalid value "meganode"; want micronode or macronode`},
		{args: []string{"orders"}, want: `unexpected argument "orders"`},
		{args: []string{"--t-replay=soon"}, want: `--t-replay: invalid value "soon"; want a duration like`},
		{args: []string{"--t-replay=1s"}, want: `mailbox.t_replay (--t-replay): invalid value "1s"; want 10s to 87600h`},
		{args: []string{"--cap-cache-ttl=4s"}, want: "want 5s to 2m"},
		{args: []string{"--cap-cache-ttl=121s"}, want: "want 5s to 2m"},
		{args: []string{"--visibility-min=10s"}, want: `mailbox.default_visibility (--default-visibility): invalid value "5s"`},
		{args: []string{"--backoff-max=1ms"}, want: "mailbox.backoff_max"},
		{args: []string{"--max-attempts=-1"}, want: `--max-attempts: invalid value "-1"; want more than 0, or 0 to turn it off`},
		{args: []string{"--retain-ready=-1s"}, want: `--retain-ready: invalid value "-1s"; want more than 0, or 0`},
		{args: []string{"--shards=0"}, want: `--shards: invalid value "0"; want more than 0`},
		{args: []string{"--max-wait=0s"}, want: `--max-wait: invalid value "0s"; want more than 0`},
		{args: []string{"--t-replay=0"}, want: `--t-replay: invalid value "0"; want more than 0`},
		{environ: []string{"MAILBOXD_MAX_CONNS=0"}, want: `MAILBOXD_MAX_CONNS: invalid value "0"; want more than 0`},
		{file: "[listen]\nmax_conns = 0", want: `listen.max_conns: invalid value "0"; want more than 0`},
		{args: []string{"--max-messages=257"}, want: "want 1 to 256"},
		{args: []string{"--listen=0.0.0.0:80"}, want: "plaintext"},
		{args: []string{"--listen-oap=:80"}, want: "plaintext"},
		{args: []string{"--listen=here"}, want: "HOST:PORT"},
		{args: []string{"--listen=off", "--listen-oap=off"}, want: "no client could reach"},
		{args: []string{"--tls-cert=x"}, want: "go together"},
		{args: []string{"--tls-client-ca=x"}, want: "needs tls.cert and tls.key"},
		{args: []string{"--backend=disk:x", "--amnesia"}, want: "which amnesia forbids"},
		{args: []string{"--backend=mysql:x"}, want: "unknown scheme mysql:"},
		{args: []string{"--backend=redis://127.0.0.1:6379?replicas=-1"}, want: "replicas: want how many replicas of a primary confirm, 0 to 255"},
		{args: []string{"--backend=disk:"}, want: "needs a directory"},
		{args: []string{"--log-level=loud"}, want: "log.level"},
		{args: []string{"--max-payload-bytes=2MiB"}, want: "limits.max_payload_bytes"},
		{environ: []string{"MAILBOXD_ATTEMPTS=5"}, want: "unknown variable MAILBOXD_ATTEMPTS; did you mean MAILBOXD_MAX_ATTEMPTS? see mailboxd --help"},
		{environ: []string{"MAILBOXD_MAX_CONN=5"}, want: "unknown variable MAILBOXD_MAX_CONN; did you mean MAILBOXD_MAX_CONNS?"},
		{args: []string{"--lisen=x"}, want: "unknown flag --lisen; did you mean --listen? see mailboxd --help"},
		{args: []string{"-maxconns", "3"}, want: "unknown flag --maxconns; did you mean --max-conns?"},
		{args: []string{"--colour"}, want: "unknown flag --colour; see mailboxd --help"},
		{args: []string{"--listen"}, want: "--listen needs a value"},
		{environ: []string{"MAILBOXD_AMNESIA=maybe"}, want: "true or false"},
		{file: "max_attempts = 5", want: "unknown key max_attempts; did you mean mailbox.max_attempts?"},
		{file: "[mailbox]\nmax_attempts = \"five\"", want: `mailbox.max_attempts: invalid value "five"; want a whole number`},
		{file: "[mailbox]\nmax_attempts = 5\nmax_attempts = 6", want: "invalid TOML"},
		{file: "[mailbox\n", want: "invalid TOML: line 1"},
		{file: "[mailbox]\nmax_attempts = 1.5", want: "want a string, a whole number"},
	} {
		args := test.args
		if test.file != "" {
			args = append(args, "--config="+writeFile(t, test.file))
		}
		_, err := server.Load(args, test.environ, io.Discard)
		if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v %v %q: got %v, want %q", test.args, test.environ, test.file, err, test.want)
		}
	}
	if _, err := server.Load([]string{"--config=nowhere.toml"}, nil, io.Discard); err == nil || !strings.Contains(err.Error(), "read configuration: open nowhere.toml") {
		t.Errorf("a missing file: %v", err)
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

func TestHelpListsEverySettingInGroups(t *testing.T) {
	var usage strings.Builder
	if _, err := server.Load([]string{"--help"}, nil, &usage); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("got %v", err)
	}
	seen := make(map[string]bool)
	for _, s := range server.Settings() {
		if !strings.Contains(usage.String(), "--"+s.Flag+" ") || !strings.Contains(usage.String(), "["+s.Key+"]") {
			t.Errorf("%s is not explained", s.Key)
		}
		if want := "MAILBOXD_" + strings.ToUpper(strings.ReplaceAll(s.Flag, "-", "_")); s.Variable != want {
			t.Errorf("the variable of --%s is %s, and the help implies %s", s.Flag, s.Variable, want)
		}
		if s.Group == "" || !strings.Contains(usage.String(), "\n"+s.Group+":\n") {
			t.Errorf("%s is in the group %q, which has no title", s.Key, s.Group)
		}
		if seen[s.Key] || seen[s.Variable] {
			t.Errorf("%s is there twice", s.Key)
		}
		seen[s.Key], seen[s.Variable] = true, true
	}
	for _, line := range []string{"(127.0.0.1:9410) [listen.http]\n", "(5s) [listen.drain_timeout]*\n", "(1048576; micronode: 131072) [mailbox.shard_capacity]\n"} {
		if !strings.Contains(usage.String(), line) {
			t.Errorf("no line ends in %q:\n%s", line, &usage)
		}
	}
}

func TestVersionFlagPrintsVersion(t *testing.T) {
	var stdout strings.Builder
	if _, err := server.Load([]string{"--version"}, nil, &stdout); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("got %v", err)
	}
	if !strings.HasPrefix(stdout.String(), "mailboxd ") || !strings.Contains(stdout.String(), "(go1.") || strings.Count(stdout.String(), "\n") != 1 {
		t.Errorf("printed %q", stdout.String())
	}
}

func TestProfilesDiffer(t *testing.T) {
	micro, macro := server.Defaults(server.Micronode), server.Defaults(server.Macronode)
	if !*micro.Amnesia || *macro.Amnesia {
		t.Error("the profiles have the wrong defaults of amnesia")
	}
	off := false
	daemon, err := server.New(server.Config{Profile: server.Micronode, Amnesia: &off}, nil)
	if err != nil || *daemon.Config().Amnesia || daemon.Config().Backend != "memory:" {
		t.Errorf("an explicit setting does not win: %v", err)
	}
}

// TestExplicitZeroTurnsSettingOff sets 0 by flag, variable and file; other settings
// keep their defaults.
func TestExplicitZeroTurnsSettingOff(t *testing.T) {
	want := driver.Config{
		Shards: 1, DedupWindow: 5 * time.Minute, DedupMax: driver.Off, MaxDeliveries: driver.Off, MaxMessages: driver.Off, MaxBytes: driver.Off,
		MaxInFlight: driver.Off, MaxDead: driver.Off, MaxHold: driver.Off, TTL: driver.Off, PriorityAging: driver.DefaultPriorityAging,
		RetainReady: driver.Retention{Age: driver.Off, Count: driver.Off}, RetainDead: driver.Retention{Age: driver.Off, Count: driver.Off},
	}
	var args, environ []string
	file := make(map[string]string)
	for _, s := range server.Settings() {
		if !s.CanBeOff {
			continue
		}
		args = append(args, "--"+s.Flag+"=0")
		environ = append(environ, s.Variable+"=0")
		section, name, _ := strings.Cut(s.Key, ".")
		file[section] += name + " = \"0\"\n"
	}
	path := writeFile(t, "[mailbox]\n"+file["mailbox"]+"[retention]\n"+file["retention"])
	for from, given := range map[string]struct{ args, environ []string }{
		"flags": {args: args}, "environment": {environ: environ}, "file": {args: []string{"--config", path}},
	} {
		config, err := server.Load(append(given.args, "--profile=micronode"), given.environ, io.Discard)
		if err != nil {
			t.Errorf("%s: %v", from, err)
			continue
		}
		if got := server.QueueDefaults(config); got.Resolve(nil, driver.Config{}) != want {
			t.Errorf("%s: got %+v, want %+v", from, got, want)
		}
	}
	config, err := server.Load([]string{"--max-attempts=0"}, nil, io.Discard)
	if got := server.QueueDefaults(config); err != nil || got.MaxDeliveries != driver.Off || got.MaxDead != 1<<20 || got.RetainReady.Age != 7*24*time.Hour {
		t.Errorf("with one setting off: got %+v, error %v", got, err)
	}
}

// VIS-5: a handler that extends its lease has 12 hours by default.
func TestMaxHoldIsTwelveHoursByDefault(t *testing.T) {
	for _, profile := range []string{server.Micronode, server.Macronode} {
		if got := server.QueueDefaults(server.Defaults(profile)).MaxHold; got != 12*time.Hour {
			t.Errorf("%s: MaxHold is %v", profile, got)
		}
	}
	config, err := server.Load([]string{"--max-hold=30m"}, []string{"MAILBOXD_MAX_HOLD=20m"}, io.Discard)
	if got := server.QueueDefaults(config).MaxHold; err != nil || got != 30*time.Minute {
		t.Errorf("--max-hold=30m: got %v, error %v", got, err)
	}
}

func TestInFlightFactorIsAcceptedAndIgnored(t *testing.T) {
	path := writeFile(t, "[retention]\ninflight_factor = 3\n")
	for from, given := range map[string]struct{ args, environ []string }{
		"flag": {args: []string{"--inflight-factor=3"}}, "variable": {environ: []string{"MAILBOXD_INFLIGHT_FACTOR=3"}},
		"file": {args: []string{"--config", path}},
	} {
		config, err := server.Load(append(given.args, "--profile=micronode"), given.environ, io.Discard)
		if err != nil {
			t.Errorf("%s: %v", from, err)
			continue
		}
		daemon, err := server.New(config, nil)
		if err != nil {
			t.Errorf("%s: %v", from, err)
			continue
		}
		if got := server.QueueDefaults(daemon.Config()).MaxHold; got != 12*time.Hour || daemon.Config().InFlightFactor != 3 {
			t.Errorf("%s: MaxHold is %v", from, got)
		}
	}
}
