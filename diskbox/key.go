package diskbox

import (
	"encoding/binary"

	"github.com/zeebo/blake3"

	"github.com/mailboxmq/mailbox/internal/engine"
	"github.com/mailboxmq/mailbox/internal/host"
)

// The first byte of a key; see the package documentation.
const (
	queueKind   = 'q'
	countKind   = 'c'
	messageKind = 'm'
	stateKind   = 's'
	leaseKind   = 'l'
	placeKind   = 'w'
	dueKind     = 't'
	alarmKind   = 'a'
	endKind     = 'e'
	groupKind   = 'g'
	levelKind   = 'p'
	uniqueKind  = 'u'
	deadKind    = 'd'
	deadIDKind  = 'i'
	leavingKind = 'f'
	dedupKind   = 'k'
	// the records of schedules have the name of one at the end
	scheduleKind = 'r'
)

// liveKinds are the kinds of records of messages that are not dead, and deadKinds of dead
// letters.
var (
	liveKinds = []byte{messageKind, stateKind, leaseKind, placeKind, dueKind, alarmKind, endKind, groupKind, levelKind, uniqueKind}
	deadKinds = []byte{deadKind, deadIDKind, leavingKind}
)

var (
	clockKey = []byte("T")
	metaKey  = []byte("X")
	// closedKey exists while a store is closed in order.
	closedKey = []byte("Z")
)

const (
	queueKeyLen  = 1 + 4
	shardKeyLen  = queueKeyLen + 2
	numberKeyLen = shardKeyLen + 8
	dueKeyLen    = numberKeyLen + 8
	groupHashLen = 16
	groupKeyLen  = numberKeyLen + groupHashLen
	levelKeyLen  = numberKeyLen + 1
	dedupKeyLen  = queueKeyLen + 8 + 16
)

func appendQueueKey(dst []byte, kind byte, queue uint32) []byte {
	return binary.BigEndian.AppendUint32(append(dst, kind), queue)
}

// appendShardKey appends the prefix of all keys of a kind in a shard.
func appendShardKey(dst []byte, kind byte, shard host.ShardID) []byte {
	dst = appendQueueKey(dst, kind, shard.Queue)
	return binary.BigEndian.AppendUint16(dst, shard.Shard)
}

// appendNumberKey appends a key that ends with a number: that of a message, a
// place, or a death.
func appendNumberKey(dst []byte, kind byte, shard host.ShardID, number uint64) []byte {
	return binary.BigEndian.AppendUint64(appendShardKey(dst, kind, shard), number)
}

// parseShardKey returns the shard of a key.
func parseShardKey(key []byte) (shard host.ShardID, ok bool) {
	if len(key) < shardKeyLen {
		return shard, false
	}
	shard.Queue = binary.BigEndian.Uint32(key[1:])
	shard.Shard = binary.BigEndian.Uint16(key[queueKeyLen:])
	return shard, true
}

// lastNumber returns the number at the end of a key.
func lastNumber(key []byte) uint64 { return binary.BigEndian.Uint64(key[len(key)-8:]) }

// appendDueKey appends the key of a message by a time. The kind is dueKind, or alarmKind or
// endKind if due is a wall time.
func appendDueKey(dst []byte, kind byte, shard host.ShardID, due engine.Instant, seq uint64) []byte {
	return binary.BigEndian.AppendUint64(appendDuePrefix(dst, kind, shard, due), seq)
}

// appendDuePrefix appends the prefix of the keys of all messages due at one time.
func appendDuePrefix(dst []byte, kind byte, shard host.ShardID, due engine.Instant) []byte {
	return appendInstant(appendShardKey(dst, kind, shard), due)
}

// appendInstant appends a time so that keys sort by time.
func appendInstant(dst []byte, at engine.Instant) []byte {
	return binary.BigEndian.AppendUint64(dst, uint64(at)^1<<63)
}

func parseInstant(key []byte) engine.Instant {
	return engine.Instant(binary.BigEndian.Uint64(key) ^ 1<<63)
}

// appendGroupKey appends the key of a message in a group. It has a hash of the group's
// name, because names have any length.
func appendGroupKey(dst []byte, shard host.ShardID, group string, place uint64) []byte {
	dst = appendShardKey(dst, groupKind, shard)
	hash := blake3.Sum256([]byte(group))
	dst = append(dst, hash[:groupHashLen]...)
	return binary.BigEndian.AppendUint64(dst, place)
}

// appendLevelKey appends the key of a message by priority and place.
func appendLevelKey(dst []byte, shard host.ShardID, priority uint8, place uint64) []byte {
	return binary.BigEndian.AppendUint64(append(appendShardKey(dst, levelKind, shard), priority), place)
}

// appendDeadIDKey appends the key under which a dead letter is found by its id.
func appendDeadIDKey(dst []byte, shard host.ShardID, id string) []byte {
	return append(appendShardKey(dst, deadIDKind, shard), id...)
}

// appendDedupKey appends the key of a dedup record; the records of a queue sort by the end
// of their window.
func appendDedupKey(dst []byte, queue uint32, ends engine.Instant, key engine.Digest) []byte {
	return append(appendInstant(appendQueueKey(dst, dedupKind, queue), ends), key[:]...)
}

func parseDedupKey(key []byte) (queue uint32, ends engine.Instant, digest engine.Digest, ok bool) {
	if len(key) != dedupKeyLen {
		return 0, 0, digest, false
	}
	copy(digest[:], key[queueKeyLen+8:])
	return binary.BigEndian.Uint32(key[1:]), parseInstant(key[queueKeyLen:]), digest, true
}

// successor returns the first key after all keys with this prefix.
func successor(prefix []byte) []byte {
	end := append([]byte(nil), prefix...)
	for i := len(end) - 1; i >= 0; i-- {
		if end[i]++; end[i] != 0 {
			return end[:i+1]
		}
	}
	return nil
}
