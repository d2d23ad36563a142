package diskbox

import (
	"bytes"
	"testing"

	"github.com/mailboxmq/mailbox/internal/engine"
	"github.com/mailboxmq/mailbox/internal/host"
)

// FuzzKeys reads keys that say anything. One that is read is written as it was.
func FuzzKeys(f *testing.F) {
	f.Add(appendShardKey(nil, dueKind, host.ShardID{Queue: 1, Shard: 2}))
	f.Add(appendDedupKey(nil, 3, 4, engine.Digest{5}))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, key []byte) {
		if shard, ok := parseShardKey(key); ok {
			if again := appendShardKey(nil, key[0], shard); !bytes.HasPrefix(key, again) {
				t.Errorf("%x is of %+v, whose keys begin with %x", key, shard, again)
			}
		}
		if queue, ends, digest, ok := parseDedupKey(key); ok {
			if again := appendDedupKey(nil, queue, ends, digest); !bytes.Equal(key[1:], again[1:]) {
				t.Errorf("%x is written %x", key, again)
			}
		}
	})
}
