package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
)

// maxDaemonSize returns the most that mailboxd may take, stripped. A program for Windows is 0.7 MiB
// larger than the one for Linux (docs/decisions/0058).
func maxDaemonSize(p platform) int {
	if p.system == "windows" {
		return 33 << 20
	}
	return 32 << 20
}

// A platform is what programs are built for.
type platform struct{ system, arch string }

func (p platform) String() string { return p.system + "/" + p.arch }

// program returns the file name of a program.
func (p platform) program(name string) string {
	if p.system == "windows" {
		name += ".exe"
	}
	return name
}

// A file is one of an archive, a package or an image.
type file struct {
	name    string // with slashes
	mode    int64
	content []byte
}

// A build is the programs for a platform, and the files that come with them.
type build struct {
	platform
	programs []file // mailbox and mailboxd
	others   []file
}

// compile builds both programs, once for each platform, and returns their directory. Only the
// sources, the version and the version of Go decide what is in them; the profile is that of
// docs/decisions/0036.
func (r *release) compile(p platform) (string, error) {
	dir := filepath.Join(r.work, p.system+"_"+p.arch)
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	c := exec.Command("go", "build", "-mod=readonly", "-trimpath", "-buildvcs=false",
		"-ldflags=-s -w -buildid= -X github.com/mailboxmq/mailbox/internal/version.release=v"+r.version,
		"-pgo="+filepath.Join(r.source, "cmd/mailboxd/mailboxd.pgo"), "-o", dir+string(filepath.Separator), "./cmd/mailbox", "./cmd/mailboxd")
	c.Dir = r.source
	c.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+p.system, "GOARCH="+p.arch, "GOAMD64=v1", "GOARM64=v8.0", "GOFLAGS=-trimpath", "GOWORK=off")
	c.Stderr = os.Stderr
	if err := c.Run(); err != nil {
		return "", fmt.Errorf("build for %v: %w", p, err)
	}
	return dir, nil
}

// build builds the programs for a platform.
func (r *release) build(p platform, guides []file) (build, error) {
	dir, err := r.compile(p)
	if err != nil {
		return build{}, err
	}
	b := build{platform: p, others: guides}
	for _, name := range []string{"mailbox", "mailboxd"} {
		content, err := os.ReadFile(filepath.Join(dir, p.program(name)))
		if err != nil {
			return build{}, err
		}
		if most := maxDaemonSize(p); name == "mailboxd" && len(content) > most {
			return build{}, fmt.Errorf("mailboxd for %v takes %d bytes; want at most %d", p, len(content), most)
		}
		b.programs = append(b.programs, file{p.program(name), 0o755, content})
	}
	return b, nil
}

// guides returns the files that come with the programs on every platform: licences, the
// sample of settings, completions and man pages. The programs, built for this machine, print
// the latter two.
func (r *release) guides() ([]file, error) {
	here := platform{runtime.GOOS, runtime.GOARCH}
	dir, err := r.compile(here)
	if err != nil {
		return nil, err
	}
	print := func(program string, args ...string) ([]byte, error) {
		c := exec.Command(filepath.Join(dir, here.program(program)), args...)
		c.Env = []string{"HOME=/", "COLUMNS=100", "NO_COLOR=1"}
		c.Stderr = os.Stderr
		return c.Output()
	}
	var files []file
	for name, from := range map[string]string{
		"LICENSE": "LICENSE", "THIRD_PARTY_NOTICES": "THIRD_PARTY_NOTICES", "README.md": "README.md", "mailboxd.sample.toml": "deploy/mailboxd.sample.toml",
	} {
		content, err := os.ReadFile(filepath.Join(r.source, from))
		if err != nil {
			return nil, err
		}
		files = append(files, file{name, 0o644, content})
	}
	for shell, name := range map[string]string{"bash": "mailbox.bash", "zsh": "_mailbox", "fish": "mailbox.fish", "powershell": "mailbox.ps1"} {
		content, err := print("mailbox", "completion", shell)
		if err != nil {
			return nil, fmt.Errorf("mailbox completion %s: %w", shell, err)
		}
		files = append(files, file{"completions/" + name, 0o644, content})
	}
	page, err := print("mailbox", "man")
	if err != nil {
		return nil, fmt.Errorf("mailbox man: %w", err)
	}
	help, err := print("mailboxd", "--help")
	if err != nil {
		return nil, fmt.Errorf("mailboxd --help: %w", err)
	}
	page = regexp.MustCompile(`^(\.TH MAILBOX 1 ")[^"]*`).ReplaceAll(page, []byte("${1}"+r.date.Format("2006-01-02")))
	files = append(files, file{"man/mailbox.1", 0o644, page}, file{"man/mailboxd.8", 0o644, r.manual(string(help))})
	slices.SortFunc(files, func(a, b file) int { return strings.Compare(a.name, b.name) })
	return files, nil
}

// manual returns a man page with the text of mailboxd --help: paragraphs, sections that end
// in a colon, and flags with their descriptions.
func (r *release) manual(help string) []byte {
	var page bytes.Buffer
	fmt.Fprintf(&page, ".TH MAILBOXD 8 %q \"mailbox %s\"\n.SH NAME\nmailboxd \\- the mailbox daemon\n.SH SYNOPSIS\n.B mailboxd\n[flags]\n.SH DESCRIPTION\n", r.date.Format("2006-01-02"), r.version)
	plain := strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace
	for line := range strings.Lines(help) {
		line = strings.TrimRight(line, "\n")
		flag, isFlag := strings.CutPrefix(line, "  --")
		section, isSection := strings.CutSuffix(line, ":")
		switch {
		case isFlag:
			name, meaning, _ := strings.Cut(flag, "  ")
			fmt.Fprintf(&page, ".TP\n.B %s\n%s\n", plain("--"+name), `\&`+plain(strings.TrimSpace(meaning)))
		case isSection && !strings.HasPrefix(line, " "):
			fmt.Fprintf(&page, ".SH %s\n", strings.ToUpper(plain(section)))
		case line == "":
			page.WriteString(".PP\n")
		default:
			fmt.Fprintf(&page, "%s\n", `\&`+plain(strings.TrimSpace(line)))
		}
	}
	return page.Bytes()
}
