//go:build linux

package main

import (
	"encoding/json"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/mailboxmq/mailbox/internal/testing/proctest"
)

// repository is the root of the repository.
const repository = "../.."

// An image is the container image, assembled by hand from the steps of the Dockerfile.
type image struct {
	t                       *testing.T
	root                    string // of its file system
	env                     map[string]string
	uid, gid                int
	entrypoint, healthcheck []string

	context string // the build context: the repository without .dockerignore
	build   string // file system of the stage that builds
	stage   string
}

// assemble follows the Dockerfile. Steps that need the network or another image are
// left out: the module cache and the certificates of this machine replace them.
func assemble(t *testing.T) *image {
	t.Helper()
	proctest.Find(t, "sh")
	i := &image{t: t, root: t.TempDir(), build: t.TempDir(), context: t.TempDir(), env: make(map[string]string)}
	if err := os.Chmod(i.root, 0o755); err != nil { // it is / of the image
		t.Fatal(err)
	}
	i.sendContext()
	for _, step := range steps(t) {
		word, rest, _ := strings.Cut(step, " ")
		rest = strings.TrimSpace(rest)
		switch word {
		case "FROM":
			i.stage = "final"
			if _, name, named := strings.Cut(rest, " AS "); named {
				i.stage = name
			}
		case "RUN":
			i.run(rest)
		case "COPY":
			i.copy(strings.Fields(rest))
		case "ENV":
			for _, entry := range strings.Fields(rest) {
				name, value, _ := strings.Cut(entry, "=")
				i.env[name] = value
			}
		case "USER":
			i.uid, i.gid = owner(t, rest)
		case "ENTRYPOINT":
			i.entrypoint = command(t, rest)
		case "HEALTHCHECK":
			_, words, _ := strings.Cut(rest, "CMD ")
			i.healthcheck = command(t, words)
		case "ARG", "WORKDIR", "VOLUME", "EXPOSE":
		default:
			t.Fatalf("the Dockerfile has a step that this test does not know: %s", step)
		}
	}
	return i
}

// steps returns the steps of the Dockerfile, each on one line.
func steps(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(repository, "deploy/docker/Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for line := range strings.Lines(strings.ReplaceAll(string(text), "\\\n", " ")) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			found = append(found, line)
		}
	}
	return found
}

// sendContext copies the repository without the files in .dockerignore.
func (i *image) sendContext() {
	i.t.Helper()
	text, err := os.ReadFile(filepath.Join(repository, ".dockerignore"))
	if err != nil {
		i.t.Fatal(err)
	}
	ignored := func(file string) bool {
		for line := range strings.Lines(string(text)) {
			pattern, anywhere := strings.CutPrefix(strings.TrimSpace(line), "**/")
			name := file
			if anywhere {
				name = path.Base(file)
			}
			if match, _ := path.Match(pattern, name); match {
				return true
			}
		}
		return false
	}
	err = filepath.WalkDir(repository, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		file, err := filepath.Rel(repository, name)
		switch {
		case err != nil:
			return err
		case file != "." && ignored(filepath.ToSlash(file)) && entry.IsDir():
			return filepath.SkipDir
		case file != "." && ignored(filepath.ToSlash(file)):
			return nil
		case entry.IsDir():
			return os.MkdirAll(filepath.Join(i.context, file), 0o755)
		}
		return duplicate(name, filepath.Join(i.context, file))
	})
	if err != nil {
		i.t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(i.context, ".git")); err == nil {
		i.t.Error("the history of the repository is sent to the build")
	}
}

// duplicate copies a file.
func duplicate(from, to string) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, content, info.Mode().Perm())
}

// run runs a step of the stage that builds.
func (i *image) run(line string) {
	i.t.Helper()
	if !strings.Contains(line, "/out/") { // downloads modules, or checks the name of an image
		return
	}
	if os.Getuid() != 0 {
		line = strings.NewReplacer("-o 65532 ", "", "-g 65532 ", "").Replace(line)
	}
	step := exec.Command("sh", "-c", strings.ReplaceAll(line, "/out/", i.build+"/out/"))
	step.Dir = i.context
	step.Env = append(os.Environ(), "VERSION=v1.2.3-image", "GOFLAGS=-buildvcs=false")
	if err := os.MkdirAll(filepath.Join(i.build, "out"), 0o755); err != nil {
		i.t.Fatal(err)
	}
	if out, err := step.CombinedOutput(); err != nil {
		i.t.Fatalf("%s: %v\n%s", line, err, out)
	}
}

// copy follows a COPY step of the final stage; the others copy the context.
func (i *image) copy(words []string) {
	i.t.Helper()
	if i.stage != "final" {
		return
	}
	source, uid, gid := i.context, 0, 0
	for strings.HasPrefix(words[0], "--") {
		flag, value, _ := strings.Cut(words[0], "=")
		if flag == "--from" {
			source = i.build
		} else if flag == "--chown" {
			uid, gid = owner(i.t, value)
		}
		words = words[1:]
	}
	target := words[len(words)-1]
	for _, name := range words[:len(words)-1] {
		from, to := filepath.Join(source, name), filepath.Join(i.root, target)
		if strings.HasSuffix(target, "/") {
			to = filepath.Join(to, path.Base(name))
		}
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			i.t.Fatal(err)
		}
		info, err := os.Stat(from)
		switch {
		case err != nil && strings.HasPrefix(name, "/etc/ssl/"): // of the image that builds
			err = os.WriteFile(to, nil, 0o644)
		case err == nil && info.IsDir():
			err = os.Mkdir(to, info.Mode().Perm())
		case err == nil:
			err = duplicate(from, to)
		}
		if err == nil && os.Getuid() == 0 {
			err = os.Chown(to, uid, gid)
		}
		if err != nil {
			i.t.Fatal(err)
		}
	}
}

// owner parses UID:GID.
func owner(t *testing.T, text string) (uid, gid int) {
	t.Helper()
	first, second, _ := strings.Cut(text, ":")
	uid, err := strconv.Atoi(first)
	if err != nil {
		t.Fatal(err)
	}
	if gid, err = strconv.Atoi(second); err != nil {
		t.Fatal(err)
	}
	return uid, gid
}

// command parses the exec form of a command.
func command(t *testing.T, text string) (words []string) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &words); err != nil {
		t.Fatalf("%s: %v: the image has no shell", text, err)
	}
	return words
}

// program returns a command of the image, in its file system, as its user and with its
// variables.
func (i *image) program(words ...string) *exec.Cmd {
	c := exec.Command(words[0], words[1:]...)
	for _, name := range slices.Sorted(maps.Keys(i.env)) {
		c.Env = append(c.Env, name+"="+i.env[name])
	}
	i.confine(c)
	return c
}
