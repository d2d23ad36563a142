package redisbox

import (
	"strings"
	"testing"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/redistest"
)

func TestBraceInPrefixIsRefused(t *testing.T) {
	_, err := Open(t.Context(), connect(t, redistest.SharedServer(t).ClientOption()), &Options{Prefix: "a{b"})
	wantCode(t, err, driver.ErrInvalid)
	if !strings.Contains(err.Error(), "Prefix") {
		t.Errorf("got %v, want the field to be named", err)
	}
}

func TestKeysHaveDocumentedNames(t *testing.T) {
	server := redistest.Standalone(t)
	q := openQueue(t, open(t, connect(t, server.ClientOption()), &Options{Prefix: "shop:"}))
	send(t, q, "a", "b")
	receive(t, q, 1, hold)
	for key, kind := range map[string]string{
		"shop:{queue:orders}:meta": "hash", "shop:{queue:orders}:data": "hash",
		"shop:{queue:orders}:pending": "list", "shop:{queue:orders}:invisible": "zset",
		"shop:queues": "set",
	} {
		if got, err := server.Do(t.Context(), "TYPE", key); err != nil || got != kind {
			t.Errorf("%s is a %v, error %v; want a %s", key, got, err, kind)
		}
	}
}
