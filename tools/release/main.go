// Command release builds a release of Mailbox from a source tree into a directory:
//
//	go run . -source ../.. -version v0.1.0 -out ../../dist
//
// The directory has archives of the programs for each platform, packages for Debian and
// Fedora, a container image, a list of components, a Homebrew formula, release notes and
// checksums. Equal sources, version and Go give equal bytes, in any directory and at any
// time: dates are the release's in CHANGELOG.md. Nothing is downloaded once the modules are
// in the cache.
package main

import (
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

func main() {
	source := flag.String("source", ".", "the source `directory`")
	version := flag.String("version", "", "the `version`, such as v0.1.0; CHANGELOG.md must have it")
	out := flag.String("out", "dist", "the `directory` to write, which must not have files of another release")
	only := flag.String("only", "", "build one `platform` alone, such as linux/amd64")
	flag.Parse()
	if err := run(*source, *version, *out, *only); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// The platforms of a release.
var platforms = []platform{
	{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "amd64"}, {"darwin", "arm64"}, {"windows", "amd64"}, {"windows", "arm64"},
}

// A release is what its parts are made from.
type release struct {
	source  string // absolute
	out     string
	work    string // for files in the making
	version string // without the v
	date    time.Time
	notes   string
}

func run(source, version, out, only string) error {
	r := release{version: strings.TrimPrefix(version, "v")}
	if !regexp.MustCompile(`^v\d+\.\d+\.\d+(-[0-9A-Za-z.]+)?$`).MatchString(version) {
		return fmt.Errorf("-version: invalid value %q; want a version such as v0.1.0", version)
	}
	var err error
	if r.source, err = filepath.Abs(source); err != nil {
		return err
	}
	if r.out, err = filepath.Abs(out); err != nil {
		return err
	}
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return err
	}
	if present, err := os.ReadDir(r.out); err != nil || len(present) > 0 {
		return errors.Join(fmt.Errorf("-out: %s must be an empty directory", r.out), err)
	}
	if r.work, err = os.MkdirTemp("", "release-"); err != nil {
		return err
	}
	defer os.RemoveAll(r.work)
	if r.date, r.notes, err = changes(filepath.Join(r.source, "CHANGELOG.md"), r.version); err != nil {
		return err
	}
	return r.write(only)
}

// write builds all parts.
func (r *release) write(only string) error {
	guides, err := r.guides()
	if err != nil {
		return err
	}
	var builds []build
	for _, p := range platforms {
		if only != "" && only != p.String() {
			continue
		}
		b, err := r.build(p, guides)
		if err != nil {
			return err
		}
		builds = append(builds, b)
		if err := r.archive(b); err != nil {
			return err
		}
		if err := r.packages(b); err != nil {
			return err
		}
	}
	if len(builds) == 0 {
		return fmt.Errorf("-only: unknown platform %q; want one of %v", only, platforms)
	}
	if err := r.image(builds); err != nil {
		return err
	}
	if err := r.components(builds); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(r.out, "RELEASE_NOTES.md"), []byte(r.notes), 0o644); err != nil {
		return err
	}
	sums, err := r.sums()
	if err != nil {
		return err
	}
	return r.formula(sums)
}

// sums writes SHA256SUMS, and returns the sums by file name.
func (r *release) sums() (map[string]string, error) {
	entries, err := os.ReadDir(r.out)
	if err != nil {
		return nil, err
	}
	var lines strings.Builder
	sums := make(map[string]string)
	for _, entry := range entries {
		content, err := os.ReadFile(filepath.Join(r.out, entry.Name()))
		if err != nil {
			return nil, err
		}
		sums[entry.Name()] = fmt.Sprintf("%x", sha256.Sum256(content))
		fmt.Fprintf(&lines, "%s  %s\n", sums[entry.Name()], entry.Name())
	}
	return sums, os.WriteFile(filepath.Join(r.out, "SHA256SUMS"), []byte(lines.String()), 0o644)
}

// name returns the name of a file of the release.
func (r *release) name(rest string) string { return "mailbox_" + r.version + "_" + rest }
