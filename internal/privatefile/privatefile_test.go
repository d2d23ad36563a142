package privatefile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/mailboxmq/mailbox/driver"
)

func TestGroupReadsFilesOfRootAlone(t *testing.T) {
	const root, daemon, other = 0, 65532, 1000
	for _, test := range []struct {
		mode          fs.FileMode
		owner, reader int
		refused       bool
	}{
		{0o600, daemon, daemon, false},
		{0o400, daemon, daemon, false},
		{0o640, daemon, daemon, true},
		{0o440, other, daemon, true},
		{0o440, root, root, true},
		{0o440, root, daemon, false},
		{0o640, root, daemon, false},
		{0o460, root, daemon, true},
		{0o444, root, daemon, true},
	} {
		if refused := test.mode&forbidden(test.owner, test.reader) != 0; refused != test.refused {
			t.Errorf("%+v: refused %v", test, refused)
		}
	}
}

func TestFileThatOthersReadIsRefused(t *testing.T) {
	file := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(file, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	if text, err := Read(file, "key file", 100); text != "secret" || err != nil {
		t.Errorf("got %q, %v", text, err)
	}
	if err := os.Chmod(file, 0o640); err != nil {
		t.Fatal(err)
	}
	if text, err := Read(file, "key file", 100); text != "" || !errors.Is(err, driver.ErrForbidden) {
		t.Errorf("got %q, %v", text, err)
	}
}
