package pgbox

import (
	"errors"
	"strings"
	"testing"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/pgtest"
)

func TestAddressesThatCannotBeReadAreRefusedWithoutTheirPassword(t *testing.T) {
	for address, want := range map[string]string{
		"redis://shop:secret@127.0.0.1/shop":                      "want postgres://USER:PASSWORD@HOST:PORT/DATABASE",
		"postgres://shop:secret@127.0.0.1/%zz":                    "want postgres://USER:PASSWORD@HOST:PORT/DATABASE",
		"postgresql://shop:secret@127.0.0.1/shop?sslmode=never":   "parameters as in libpq",
		"postgres://shop:secret@127.0.0.1/shop?schema=Shop":       "Schema",
		"postgres://shop:secret@127.0.0.1/shop?poll_only=perhaps": "poll_only: want true or false",
	} {
		b, err := OpenAddress(t.Context(), address, nil)
		if !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, %v; want %q", address, b, err, want)
		}
	}
}

func TestAddressNamesSchemaAndPolling(t *testing.T) {
	schema := pgtest.Schema()
	address := strings.Replace(pgtest.Shared(t).URL(), "postgres:", "postgresql:", 1) + "&poll_only=true&schema=" + schema
	b, err := OpenAddress(t.Context(), address, &Options{Schema: "other", MaxBodyBytes: 1000})
	if err != nil {
		t.Fatal(err)
	}
	if o := b.(ownedBackend).options; o.Schema != schema || !o.PollOnly || o.MaxBodyBytes != 1000 {
		t.Errorf("options: %+v", o)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}
