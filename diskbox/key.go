package diskbox

import (
	"encoding/binary"

	"github.com/mailboxmq/mailbox/internal/engine"
	"github.com/mailboxmq/mailbox/internal/host"
)

// The first byte of a key; see the package documentation.
const (
	queueKind   = 'q'
	messageKind = 'm'
	stateKind   = 's'
	deadKind    = 'd'
	dedupKind   = 'k'
)

var (
	clockKey = []byte("T")
	metaKey  = []byte("X")
)

const messageKeyLen = 1 + 4 + 2 + 8

// appendMessageKey appends the key of a record of one message.
func appendMessageKey(dst []byte, kind byte, shard host.ShardID, seq uint64) []byte {
	dst = appendShardKey(dst, kind, shard)
	return binary.BigEndian.AppendUint64(dst, seq)
}

// appendShardKey appends what all such keys of a shard begin with.
func appendShardKey(dst []byte, kind byte, shard host.ShardID) []byte {
	dst = appendQueueKey(dst, kind, shard.Queue)
	return binary.BigEndian.AppendUint16(dst, shard.Shard)
}

func appendQueueKey(dst []byte, kind byte, queue uint32) []byte {
	return binary.BigEndian.AppendUint32(append(dst, kind), queue)
}

// parseMessageKey takes a key apart.
func parseMessageKey(key []byte) (shard host.ShardID, seq uint64, ok bool) {
	if len(key) != messageKeyLen {
		return shard, 0, false
	}
	shard.Queue = binary.BigEndian.Uint32(key[1:])
	shard.Shard = binary.BigEndian.Uint16(key[5:])
	return shard, binary.BigEndian.Uint64(key[7:]), true
}

// appendDedupKey appends the key of a dedup record; records of a queue are in
// the order in which they end.
func appendDedupKey(dst []byte, queue uint32, ends engine.Instant, key engine.Digest) []byte {
	dst = appendQueueKey(dst, dedupKind, queue)
	dst = binary.BigEndian.AppendUint64(dst, uint64(ends)^1<<63)
	return append(dst, key[:]...)
}

func parseDedupKey(key []byte) (queue uint32, ends engine.Instant, digest engine.Digest, ok bool) {
	if len(key) != 1+4+8+16 {
		return 0, 0, digest, false
	}
	copy(digest[:], key[13:])
	return binary.BigEndian.Uint32(key[1:]), engine.Instant(binary.BigEndian.Uint64(key[5:]) ^ 1<<63), digest, true
}

// successor is the first key that does not begin with prefix.
func successor(prefix []byte) []byte {
	end := append([]byte(nil), prefix...)
	for i := len(end) - 1; i >= 0; i-- {
		if end[i]++; end[i] != 0 {
			return end[:i+1]
		}
	}
	return nil
}
