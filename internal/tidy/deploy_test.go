package tidy

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/mailboxmq/mailbox/internal/testing/proctest"
)

func readDeploy(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("../../deploy/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestDeployedServiceIsConfined names the settings without which others on the machine
// could read messages, the daemon could take all of its memory, or a daemon that hangs
// would not be restarted.
func TestDeployedServiceIsConfined(t *testing.T) {
	unit := "\n" + readDeploy(t, "systemd/mailboxd.service")
	for _, line := range []string{
		"UMask=0077", "MemoryMax=", "LimitCORE=0", "NoNewPrivileges=yes", "ProtectSystem=strict", "ProtectHome=yes",
		"PrivateTmp=yes", "PrivateDevices=yes", "CapabilityBoundingSet=\n", "MemoryDenyWriteExecute=yes", "SystemCallFilter=@system-service",
		"Type=notify", "WatchdogSec=",
	} {
		if !strings.Contains(unit, "\n"+line) {
			t.Errorf("mailboxd.service has no %s", line)
		}
	}
}

// TestDeployedImagesHaveDigests refuses images by tag alone, which can be moved.
func TestDeployedImagesHaveDigests(t *testing.T) {
	text := readDeploy(t, "docker/compose.yaml")
	for line := range strings.Lines(text) {
		image, ok := strings.CutPrefix(strings.TrimSpace(line), "image: ")
		if ok && !strings.Contains(image, "@sha256:") {
			t.Errorf("compose.yaml names the image %q without its digest", image)
		}
	}
}

// TestWorkflowsPinActions refuses actions by tag, which can be moved, and workflows with more
// permissions than they name.
func TestWorkflowsPinActions(t *testing.T) {
	files, err := filepath.Glob("../../.github/workflows/*.yml")
	if err != nil || len(files) < 4 {
		t.Fatalf("found %v, %v", files, err)
	}
	pinned := regexp.MustCompile(`^[a-z-]+/[a-z-]+@[0-9a-f]{40} # v[0-9.]+$`)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), "\npermissions:\n  contents: read\n") {
			t.Errorf("%s does not limit its permissions", filepath.Base(file))
		}
		for line := range strings.Lines(string(text)) {
			if action, ok := strings.CutPrefix(strings.TrimSpace(line), "- uses: "); ok && !pinned.MatchString(action) {
				t.Errorf("%s uses %q, which has no digest", filepath.Base(file), action)
			}
		}
	}
}

// TestDeployedServiceRunsAsDocumentedUser: a restore gives the data directory to the
// user of the unit, so that has to be a fixed one that the steps create.
func TestDeployedServiceRunsAsDocumentedUser(t *testing.T) {
	unit := readDeploy(t, "systemd/mailboxd.service")
	if !strings.Contains(unit, "\nUser=mailbox\n") || strings.Contains(unit, "\nDynamicUser=yes\n") {
		t.Error("mailboxd.service does not run as the user mailbox")
	}
	for file, want := range map[string]string{
		"deploying.md": " mailbox\ninstall -m 0644 deploy/systemd/mailboxd.service", "backup.md": "chown -R mailbox: /var/lib/mailboxd",
	} {
		text, err := os.ReadFile("../../docs/" + file)
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("docs/%s does not say %q (%v)", file, want, err)
		}
	}
}

// TestShellBlocksOfDocumentsParse: a block marked sh is pasted into any shell.
func TestShellBlocksOfDocumentsParse(t *testing.T) {
	shell := proctest.Find(t, "sh")
	files, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	others, err := filepath.Glob("../../docs/from/*.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := 0
	for _, file := range append(append(files, others...), "../../README.md") {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for i, block := range strings.Split("\n"+string(text), "```") {
			script, ok := strings.CutPrefix(block, "sh\n")
			if i%2 == 0 || !ok {
				continue
			}
			blocks++
			command := exec.Command(shell, "-n")
			command.Stdin = strings.NewReader(script)
			if out, err := command.CombinedOutput(); err != nil {
				t.Errorf("%s: %v: %s\n%s", filepath.Base(file), err, out, script)
			}
		}
	}
	if blocks < 20 {
		t.Errorf("found %d blocks", blocks)
	}
}

// TestWorkerDocumentShowsTheExample: the program in docs/workers.md is one that compiles.
func TestWorkerDocumentShowsTheExample(t *testing.T) {
	program, err := os.ReadFile("../../examples/worker/main.go")
	if err != nil {
		t.Fatal(err)
	}
	document, err := os.ReadFile("../../docs/workers.md")
	if err != nil {
		t.Fatal(err)
	}
	_, code, _ := strings.Cut(string(program), "\npackage main")
	if !strings.Contains(string(document), "```go\npackage main"+code+"```") {
		t.Error("docs/workers.md does not show examples/worker/main.go as it is")
	}
}
