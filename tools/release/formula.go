package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Where the project publishes.
const (
	project   = "https://github.com/mailboxmq/mailbox"
	imageName = "ghcr.io/mailboxmq/mailboxd"
)

// formula writes a Homebrew formula that installs the archives, whose sums are given by name.
func (r *release) formula(sums map[string]string) error {
	var text strings.Builder
	fmt.Fprintf(&text, `class Mailbox < Formula
  desc "Durable message queue: the daemon mailboxd and its command line"
  homepage %q
  version %q
  license "Apache-2.0"

`, project, r.version)
	for _, system := range []struct{ brew, system string }{{"macos", "darwin"}, {"linux", "linux"}} {
		fmt.Fprintf(&text, "  on_%s do\n", system.brew)
		for _, arch := range []struct{ brew, arch string }{{"arm", "arm64"}, {"intel", "amd64"}} {
			name := r.name(system.system+"_"+arch.arch) + ".tar.gz"
			if sum, ok := sums[name]; ok {
				fmt.Fprintf(&text, "    on_%s do\n      url \"%s/releases/download/v%s/%s\"\n      sha256 %q\n    end\n", arch.brew, project, r.version, name, sum)
			}
		}
		text.WriteString("  end\n")
	}
	text.WriteString(`
  def install
    bin.install "mailbox", "mailboxd"
    bash_completion.install "completions/mailbox.bash" => "mailbox"
    zsh_completion.install "completions/_mailbox"
    fish_completion.install "completions/mailbox.fish"
    man1.install "man/mailbox.1"
    man8.install "man/mailboxd.8"
    doc.install "LICENSE", "THIRD_PARTY_NOTICES", "README.md", "mailboxd.sample.toml"
  end

  service do
    run [opt_bin/"mailboxd", "--data-dir", var/"lib/mailboxd"]
    keep_alive true
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/mailbox version")
  end
end
`)
	return os.WriteFile(filepath.Join(r.out, "mailbox.rb"), []byte(text.String()), 0o644)
}
