package sqsclients_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mailboxmq/mailbox/internal/testing/doctest"
)

// TestDocumentedFixturesStartTheDaemon runs docs/testing.md: its fixtures in Python and JavaScript start the
// program mailboxd, and a message passes through it.
func TestDocumentedFixturesStartTheDaemon(t *testing.T) {
	t.Parallel()
	clients := strings.TrimPrefix(node(t), "CLIENTS=")
	python := pythons(t, "boto3")[0]
	dir, bin := t.TempDir(), t.TempDir()
	script := "#!/bin/sh\nexec " + python + " \"$@\"\n"
	if err := os.WriteFile(filepath.Join(bin, "python3"), []byte(script), 0o700); err != nil { //nolint:gosec // it is run
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(clients, "node_modules"), filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	page := doctest.Page{
		Path: "../../docs/testing.md", Dir: dir,
		Environ: []string{"PATH=" + bin + ":" + programs(t) + ":" + os.Getenv("PATH"), "HOME=" + dir, "AWS_EC2_METADATA_DISABLED=true", "NODE_NO_WARNINGS=1"},
	}
	page.Run(t)
}
