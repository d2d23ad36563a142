package server_test

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mailboxmq/mailbox/server"
)

// FuzzSettingsFile reads files of settings. What is read is a configuration of which a
// daemon can be made, or of which it is said in a sentence why not.
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
			t.Error("it is refused without a word")
		}
	})
}

// FuzzSettingValues reads single values, as flags have them.
func FuzzSettingValues(f *testing.F) {
	settings := server.Settings()
	for i, value := range []string{"1", "true", "10s", "64KiB", "-1", "9999999999999999999999", "127.0.0.1:0"} {
		f.Add(uint8(i*7), value)
	}
	f.Fuzz(func(t *testing.T, which uint8, value string) {
		s := settings[int(which)%len(settings)]
		config, err := server.Load([]string{"--" + s.Flag + "=" + value}, nil, io.Discard)
		if err == nil {
			_ = config.Validate() // an opinion, not a crash
		}
	})
}
