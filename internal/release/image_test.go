//go:build linux

package release

import (
	"bufio"
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/mailboxmq/mailbox/internal/testing/proctest"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
)

// An image is a container image, unpacked.
type image struct {
	t                       *testing.T
	root                    string // of its file system
	env                     []string
	uid, gid                uint32
	entrypoint, healthcheck []string
}

// A descriptor refers to a blob of an image layout.
type descriptor struct {
	Digest      string
	Platform    struct{ OS, Architecture string }
	Annotations map[string]string
}

// An imageConfig is the part of an image's configuration that runs it.
type imageConfig struct {
	User            string
	Env, Entrypoint []string
	Healthcheck     struct{ Test []string }
}

// openImage unpacks the image with a tag from the layout of the release.
func openImage(t *testing.T, tag string) *image {
	t.Helper()
	layout, root := t.TempDir(), t.TempDir()
	if err := os.Chmod(root, 0o755); err != nil { // it is / of the image
		t.Fatal(err)
	}
	unpack(t, part(t, "_image.tar"), layout)
	read := func(name string, value any) {
		t.Helper()
		text, err := os.ReadFile(filepath.Join(layout, name))
		if err == nil {
			err = json.Unmarshal(text, value)
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	blob := func(digest string) string { return "blobs/sha256/" + strings.TrimPrefix(digest, "sha256:") }
	var top, index struct{ Manifests []descriptor }
	read("index.json", &top)
	for _, d := range top.Manifests {
		if d.Annotations["org.opencontainers.image.ref.name"] == tag {
			read(blob(d.Digest), &index)
		}
	}
	var manifest struct {
		Config descriptor
		Layers []descriptor
	}
	for _, d := range index.Manifests {
		if d.Platform.OS == runtime.GOOS && d.Platform.Architecture == runtime.GOARCH {
			read(blob(d.Digest), &manifest)
		}
	}
	var config struct{ Config imageConfig }
	read(blob(manifest.Config.Digest), &config)
	for _, layer := range manifest.Layers {
		content, err := os.ReadFile(filepath.Join(layout, blob(layer.Digest)))
		if err != nil {
			t.Fatal(err)
		}
		unpack(t, content, root)
	}
	c := config.Config
	if c.User != "65532:65532" || len(c.Healthcheck.Test) < 2 || c.Healthcheck.Test[0] != "CMD" {
		t.Fatalf("the configuration of the image is %+v", c)
	}
	return &image{t: t, root: root, env: c.Env, uid: 65532, gid: 65532, entrypoint: c.Entrypoint, healthcheck: c.Healthcheck.Test[1:]}
}

// set sets a variable, as docker run -e does.
func (i *image) set(name, value string) { i.env = append(i.env, name+"="+value) }

// command returns a command that runs with the file system, the user and the variables of the
// image. Without the privileges for that, it runs with the paths of the image on this machine.
func (i *image) command(words ...string) *exec.Cmd {
	c := exec.Command(words[0], words[1:]...)
	c.Env = i.env
	if os.Getuid() == 0 {
		c.Dir = "/"
		c.SysProcAttr = &syscall.SysProcAttr{Chroot: i.root, Credential: &syscall.Credential{Uid: i.uid, Gid: i.gid}}
		return c
	}
	c.Path = filepath.Join(i.root, c.Path)
	c.Env = append(c.Env, "MAILBOXD_DATA_DIR="+filepath.Join(i.root, "var/lib/mailboxd"))
	return c
}

// run runs a command, wants its exit code, and returns its output.
func (i *image) run(code int, words ...string) string {
	i.t.Helper()
	c := i.command(words...)
	var stdout, stderr bytes.Buffer
	c.Stdout, c.Stderr = &stdout, &stderr
	if err := c.Run(); c.ProcessState == nil || c.ProcessState.ExitCode() != code {
		i.t.Fatalf("%v: %v, want exit code %d: %s%s", words, err, code, &stdout, &stderr)
	}
	return strings.TrimSuffix(stdout.String(), "\n")
}

// start starts the daemon of the image, and returns it when it has started.
func (i *image) start() *exec.Cmd {
	i.t.Helper()
	daemon := i.command(i.entrypoint...)
	begin(i.t, daemon)
	return daemon
}

// begin starts a daemon that ends with the test at the latest, and returns when it has started.
func begin(t *testing.T, daemon *exec.Cmd) {
	t.Helper()
	stderr, err := daemon.StderrPipe()
	if err == nil {
		err = daemon.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = daemon.Process.Kill() })
	log := bufio.NewScanner(stderr)
	for log.Scan() && !strings.Contains(log.Text(), `"msg":"started"`) {
		t.Log(log.Text())
	}
	go func() {
		for log.Scan() {
			continue
		}
	}()
}

// end stops a daemon.
func end(t *testing.T, daemon *exec.Cmd) {
	t.Helper()
	if err := daemon.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := daemon.Wait(); err != nil {
		t.Errorf("the daemon ended with %v", err)
	}
}

func TestImageWorksWithItsCommandLine(t *testing.T) {
	volume.InFull(t)
	i := openImage(t, version())
	i.set("MAILBOXD_INSECURE_LISTEN", "true") // the user of the image must set it
	// Other tests run on this machine.
	i.set("MAILBOXD_LISTEN", "0.0.0.0:"+proctest.FreePort(t))
	i.set("MAILBOXD_LISTEN_OAP", "0.0.0.0:"+proctest.FreePort(t))
	i.run(3, i.healthcheck...)
	daemon := i.start()
	if got := i.run(0, i.healthcheck...); got != "alive" {
		t.Errorf("the health check says %q", got)
	}
	const mailbox = "/usr/local/bin/mailbox"
	token, err := os.ReadFile(filepath.Join(i.root, "var/lib/mailboxd/operator.token"))
	if got := i.run(0, mailbox, "cap", "token"); err != nil || got != strings.TrimSpace(string(token)) {
		t.Errorf("the token is printed as %q, %v", got, err)
	}
	if got := i.run(0, mailbox, "health", "--ready"); got != "ready" {
		t.Errorf("readiness is %q", got)
	}
	id := i.run(0, mailbox, "send", "hello", "Good morning")
	if got := i.run(0, mailbox, "recv", "hello", "--ack"); got != id+"\tGood morning" {
		t.Errorf("received %q", got)
	}
	if got := i.run(0, mailbox, "doctor"); !strings.Contains(got, "the daemon is v"+version()+", this is v"+version()) {
		t.Errorf("the doctor says\n%s", got)
	}
	end(t, daemon)
}

func TestImageForSQSServesWithoutCredentials(t *testing.T) {
	volume.InFull(t)
	i := openImage(t, "sqs")
	port := proctest.FreePort(t)
	i.set("MAILBOXD_LISTEN", "0.0.0.0:"+proctest.FreePort(t))
	i.set("MAILBOXD_LISTEN_OAP", "0.0.0.0:"+proctest.FreePort(t))
	i.set("MAILBOXD_LISTEN_SQS", "0.0.0.0:"+port)
	i.start()
	i.run(0, i.healthcheck...)
	request, err := http.NewRequest(http.MethodPost, "http://127.0.0.1:"+port, strings.NewReader(`{"QueueName":"hello"}`))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/x-amz-json-1.0")
	request.Header.Set("X-Amz-Target", "AmazonSQS.CreateQueue")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var answer struct{ QueueUrl string }
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil || !strings.HasSuffix(answer.QueueUrl, "/hello") {
		t.Errorf("%s: %v, %+v", response.Status, err, answer)
	}
}
