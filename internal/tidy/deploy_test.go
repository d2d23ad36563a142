package tidy

import (
	"os"
	"strings"
	"testing"
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
	for file, keyword := range map[string]string{"docker/Dockerfile": "FROM ", "docker/compose.yaml": "image: "} {
		text := readDeploy(t, file)
		for line := range strings.Lines(text) {
			image, ok := strings.CutPrefix(strings.TrimSpace(line), keyword)
			if !ok {
				continue
			}
			image, _, _ = strings.Cut(image, " AS ")
			given := strings.HasPrefix(image, "${") && strings.Contains(text, "@sha256:")
			if image != "scratch" && !given && !strings.Contains(image, "@sha256:") {
				t.Errorf("%s names the image %q without its digest", file, image)
			}
		}
	}
}
