package server_test

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mailboxmq/mailbox/server"
)

// FuzzSettingsFile reads settings files. Load returns a configuration that a daemon
// accepts, or an error of one line.
func FuzzSettingsFile(f *testing.F) {
	f.Add("profile = \"micronode\"\n[listen]\nhttp = \"127.0.0.1:0\"\nmax_conns = 10\n[mailbox]\nt_replay = \"300s\"\n")
	f.Add("[limits]\nmax_payload_bytes = \"64KiB\"\n[retention]\nready = \"1h\"\n")
	f.Add("amnesia = 1\n")
	f.Add("[[listen]]\n")
	f.Fuzz(func(t *testing.T, text string) {
		path := filepath.Join(t.TempDir(), "mailboxd.toml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		config, err := server.Load([]string{"--config=" + path}, nil, io.Discard)
		if err == nil {
			err = config.Validate()
		}
		if err != nil && strings.TrimSpace(err.Error()) == "" {
			t.Error("the error is empty")
		}
	})
}

// FuzzSettingValues reads single values, in the form that flags take.
func FuzzSettingValues(f *testing.F) {
	settings := server.Settings()
	for i, value := range []string{"1", "true", "10s", "64KiB", "-1", "9999999999999999999999", "127.0.0.1:0"} {
		f.Add(uint8(i*7), value)
	}
	f.Fuzz(func(t *testing.T, which uint8, value string) {
		s := settings[int(which)%len(settings)]
		config, err := server.Load([]string{"--" + s.Flag + "=" + value}, nil, io.Discard)
		if err == nil {
			_ = config.Validate() // must not panic
		}
	})
}
