//go:build linux

package release

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/mailboxmq/mailbox/internal/testing/proctest"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
)

// repository is the root of the repository.
const repository = "../.."

// shared is the directory of files that tests share; TestMain removes it.
var shared string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		var err error
		if shared, err = os.MkdirTemp("", "release-test-"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(shared)
		return m.Run()
	}())
}

// program builds tools/release, and returns its path.
var program = sync.OnceValues(func() (string, error) {
	path := filepath.Join(shared, "release")
	out, err := exec.Command("go", "build", "-C", filepath.Join(repository, "tools/release"), "-o", path, ".").CombinedOutput()
	if err != nil {
		err = fmt.Errorf("build tools/release: %w\n%s", err, out)
	}
	return path, err
})

// built builds the newest release of the change log for this machine, and returns its directory.
var built = sync.OnceValues(func() (string, error) {
	dir := filepath.Join(shared, "first")
	return dir, buildRelease(repository, dir, "v"+version())
})

// buildRelease builds a release for this machine from a source tree.
func buildRelease(source, dir, version string) error {
	path, err := program()
	if err != nil {
		return err
	}
	out, err := exec.Command(path, "-source", source, "-version", version, "-out", dir, "-only", runtime.GOOS+"/"+runtime.GOARCH).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("release: %w\n%s", err, out)
	}
	return err
}

// version returns the newest version in the change log, without the v.
func version() string {
	text, err := os.ReadFile(filepath.Join(repository, "CHANGELOG.md"))
	if err != nil {
		return ""
	}
	found := regexp.MustCompile(`(?m)^## \[(\d+\.\d+\.\d+)\] - `).FindSubmatch(text)
	if found == nil {
		return ""
	}
	return string(found[1])
}

// release returns the directory of the release for this machine.
func release(t *testing.T) string {
	t.Helper()
	proctest.Find(t, "go")
	dir, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// part returns the content of a file of the release.
func part(t *testing.T, ending string) []byte {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(release(t), "*"+ending))
	if err != nil || len(found) != 1 {
		t.Fatalf("files that end in %s: %v, %v", ending, found, err)
	}
	content, err := os.ReadFile(found[0])
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// unpack unpacks a tar file, compressed or not, below a directory. Owners are kept if this is root.
func unpack(t *testing.T, archive []byte, dir string) {
	t.Helper()
	var from io.Reader = bytes.NewReader(archive)
	if bytes.HasPrefix(archive, []byte{0x1f, 0x8b}) {
		compressed, err := gzip.NewReader(from)
		if err != nil {
			t.Fatal(err)
		}
		from = compressed
	}
	for reader := tar.NewReader(from); ; {
		h, err := reader.Next()
		if err == io.EOF {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, filepath.FromSlash(h.Name))
		err = os.MkdirAll(filepath.Dir(path), 0o755)
		if err == nil && h.Typeflag == tar.TypeDir {
			err = os.Mkdir(path, 0o700)
		} else if err == nil {
			var content []byte
			if content, err = io.ReadAll(reader); err == nil {
				err = os.WriteFile(path, content, 0o600)
			}
		}
		if err == nil {
			err = os.Chmod(path, h.FileInfo().Mode().Perm())
		}
		if err == nil && os.Getuid() == 0 {
			err = os.Chown(path, h.Uid, h.Gid)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// sums returns the sums of the files in a directory.
func sums(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := make(map[string]string)
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		sum := sha256.Sum256(content)
		found[entry.Name()] = hex.EncodeToString(sum[:])
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// copySources copies what a release is built from.
func copySources(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "another", "directory")
	left := []string{".git", ".cache", "bin", "dist", "bench", "docs", "examples", "tools"}
	err := filepath.WalkDir(repository, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(repository, path)
		if err != nil {
			return err
		}
		if slices.Contains(left, relative) {
			if entry.IsDir() {
				return filepath.SkipDir
			}
			return nil
		}
		to := filepath.Join(dir, relative)
		if entry.IsDir() {
			return os.MkdirAll(to, 0o755)
		}
		if strings.HasSuffix(path, "_test.go") || !entry.Type().IsRegular() {
			return nil
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(to, content, 0o644)
	})
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestReleaseOfCopyHasSameBytes(t *testing.T) {
	volume.InFull(t)
	first, second := release(t), filepath.Join(t.TempDir(), "second")
	if err := buildRelease(copySources(t), second, "v"+version()); err != nil {
		t.Fatal(err)
	}
	want, got := sums(t, first), sums(t, second)
	if len(want) < 8 {
		t.Errorf("the release has only %v", want)
	}
	for name := range want {
		if got[name] != want[name] {
			t.Errorf("%s differs", name)
		}
	}
	if len(got) != len(want) {
		t.Errorf("the second release has %d files, the first %d", len(got), len(want))
	}
}

func TestReleaseNeedsVersionOfChangeLog(t *testing.T) {
	volume.InFull(t)
	path, err := program()
	if err != nil {
		t.Fatal(err)
	}
	for version, want := range map[string]string{
		"1.2": `-version: invalid value "1.2"`, "v999.0.0": "has no heading ## [999.0.0]",
	} {
		out, err := exec.Command(path, "-source", repository, "-version", version, "-out", t.TempDir()).CombinedOutput()
		if err == nil || !strings.Contains(string(out), want) {
			t.Errorf("version %s: %v, %s", version, err, out)
		}
	}
}

func TestArchiveHasProgramsAndGuides(t *testing.T) {
	volume.InFull(t)
	dir := t.TempDir()
	unpack(t, part(t, ".tar.gz"), dir)
	folder := filepath.Join(dir, "mailbox_"+version()+"_"+runtime.GOOS+"_"+runtime.GOARCH)
	for _, name := range []string{"mailbox", "mailboxd"} {
		out, err := exec.Command(filepath.Join(folder, name), "--version").CombinedOutput()
		if err != nil || !strings.Contains(string(out), "v"+version()) {
			t.Errorf("%s --version: %v, %s", name, err, out)
		}
	}
	for name, want := range map[string]string{
		"LICENSE": "Apache License", "THIRD_PARTY_NOTICES": "Licences of the modules", "README.md": "# Mailbox", "mailboxd.sample.toml": "[listen]",
		"completions/mailbox.bash": "complete", "completions/_mailbox": "#compdef mailbox", "completions/mailbox.fish": "complete -c mailbox", "completions/mailbox.ps1": "Register-ArgumentCompleter",
		"man/mailbox.1": ".TH MAILBOX 1", "man/mailboxd.8": "\\-\\-listen\\-sqs",
	} {
		content, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil || !strings.Contains(string(content), want) {
			t.Errorf("%s does not have %q: %v", name, want, err)
		}
	}
}

func TestPackagesInstallTheService(t *testing.T) {
	volume.InFull(t)
	files := []string{"mailbox", "mailboxd", "mailboxd.service", "mailbox.conf", "mailboxd.toml", "mailbox.1", "mailboxd.8", "THIRD_PARTY_NOTICES"}
	rpm := part(t, ".rpm")
	for _, name := range files {
		if !bytes.Contains(rpm, append([]byte(name), 0)) { // its header has names in plain text
			t.Errorf("the rpm has no %s", name)
		}
	}
	if !bytes.HasPrefix(rpm, []byte{0xed, 0xab, 0xee, 0xdb}) {
		t.Error("the rpm does not begin as one")
	}
	tool := proctest.Find(t, "dpkg-deb")
	deb, dir := filepath.Join(t.TempDir(), "mailbox.deb"), t.TempDir()
	if err := os.WriteFile(deb, part(t, ".deb"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(tool, "-x", deb, dir).CombinedOutput(); err != nil {
		t.Fatalf("dpkg-deb: %v, %s", err, out)
	}
	installed := sums(t, dir)
	for _, name := range files {
		if _, ok := installed[name]; !ok {
			t.Errorf("the deb has no %s", name)
		}
	}
	unit, err := os.ReadFile(filepath.Join(dir, "usr/lib/systemd/system/mailboxd.service"))
	if err != nil || !strings.Contains(string(unit), "\nExecStart=/usr/bin/mailboxd\n") {
		t.Errorf("the unit does not start the program of the package: %v", err)
	}
	if out, err := exec.Command(filepath.Join(dir, "usr/bin/mailbox"), "--version").CombinedOutput(); err != nil {
		t.Errorf("the program of the deb: %v, %s", err, out)
	}
}

// TestComponentsAreTheModulesWithLicences compares two lists of what is linked: the list of
// components, made from the programs, and the licences, made from go.mod.
func TestComponentsAreTheModulesWithLicences(t *testing.T) {
	volume.InFull(t)
	var list struct {
		Components []struct{ Type, Name, Version string }
	}
	if err := json.Unmarshal(part(t, ".cdx.json"), &list); err != nil {
		t.Fatal(err)
	}
	notices, err := os.ReadFile(filepath.Join(repository, "THIRD_PARTY_NOTICES"))
	if err != nil {
		t.Fatal(err)
	}
	libraries, programs := 0, 0
	for _, c := range list.Components {
		if c.Type == "application" {
			programs++
		} else if c.Name != "std" {
			libraries++
			if !strings.Contains(string(notices), "\n"+c.Name+" "+c.Version+"\n") {
				t.Errorf("THIRD_PARTY_NOTICES does not have %s %s", c.Name, c.Version)
			}
		}
	}
	if programs != 2 || libraries < 40 {
		t.Errorf("%d programs and %d libraries", programs, libraries)
	}
}

func TestFormulaAndNotesFitTheRelease(t *testing.T) {
	volume.InFull(t)
	sum := sums(t, release(t))
	archive := "mailbox_" + version() + "_" + runtime.GOOS + "_" + runtime.GOARCH + ".tar.gz"
	formula := string(part(t, "mailbox.rb"))
	if !strings.Contains(formula, "/releases/download/v"+version()+"/"+archive+"\"\n      sha256 \""+sum[archive]+"\"") {
		t.Errorf("the formula is\n%s", formula)
	}
	if !strings.Contains(string(part(t, "SHA256SUMS")), sum[archive]+"  "+archive+"\n") {
		t.Error("SHA256SUMS does not have the sum of the archive")
	}
	notes := string(part(t, "RELEASE_NOTES.md"))
	if strings.Contains(notes, "\n## [") || !strings.Contains(notes, "\n### ") {
		t.Errorf("the notes are not those of one version:\n%.300s", notes)
	}
}
