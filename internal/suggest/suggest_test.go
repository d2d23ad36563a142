package suggest_test

import (
	"testing"

	"github.com/mailboxmq/mailbox/internal/suggest"
)

func TestClosestFindsMistypedName(t *testing.T) {
	known := []string{"listen", "listen-oap", "log-level", "max-conns", "ls"}
	for word, want := range map[string]string{
		"lisen": "listen", "listne": "listen", "listen_oap": "listen-oap", "loglevel": "log-level", "max-con": "max-conns",
		"sl": "ls", "": "", "x": "", "backend": "", "listening-address": "",
	} {
		if got := suggest.Closest(word, known); got != want {
			t.Errorf("%q: got %q, want %q", word, got, want)
		}
	}
}
