package shard

import (
	"strconv"
	"strings"

	"github.com/mailboxmq/mailbox/driver"
)

// KeyNames are the keys of a shard, in the order in which scripts take them. The names are
// stored. Those that are not words of the glossary:
//
//	pending    ready messages, in order; those that return to an earlier place are in returned
//	invisible  messages in flight, by deadline
//	the ninth  what is stored about dead letters; dead has their order
//	out        messages that block their strict group
//	outbox     dead letters that have to be forwarded
//	manifests  bundles: see bundle.lua
//	windows    dedup keys, by the end of their window
//	ends       waiting messages with a time to live, by when it is over
//	holders    the messages that hold unique keys, by key
//	levels     ready messages with a priority above 0, by priority and place
//	arrivals   messages that came from other queues, so that none arrives twice
var KeyNames = []string{
	"meta", "pending", "returned", "invisible", "delayed", "data", "state", "dead", "graves",
	"ages", "groups", "eligible", "out", "outbox", "dedup", "windows", "sessions", "arrivals",
	"manifests", "turns", "served", "ends", "levels", "holders",
}

// Tag is the beginning of a shard's keys. The part in braces decides the slot in a
// cluster, so that all keys of one shard are together and different shards are spread. A
// name cannot contain braces, and "queue:" is not a prefix of "queue.1:", so no two
// shards of any queues share a tag.
func Tag(prefix, name string, shard int) string {
	if shard == 0 {
		return prefix + "{queue:" + name + "}:"
	}
	return prefix + "{queue." + strconv.Itoa(shard) + ":" + name + "}:"
}

// Keys returns the keys of a shard, and after them the key of the tombstone that a
// deleted queue leaves for a week.
func Keys(prefix, name string, shard int) []string {
	begin := Tag(prefix, name, shard)
	keys := make([]string, 0, len(KeyNames)+1)
	for _, key := range KeyNames {
		keys = append(keys, begin+key)
	}
	return append(keys, begin+"gone")
}

// Channel is where the scripts of a shard publish announcements.
func Channel(prefix, name string, shard int) string { return Tag(prefix, name, shard) + "wake" }

// BucketTag is the beginning of the keys of a bucket of reply slots.
func BucketTag(prefix string, number int) string {
	return prefix + "{replies." + strconv.Itoa(number) + "}:"
}

// Registry is the set of the names of all queues.
func Registry(prefix string) string { return prefix + "queues" }

// CheckPrefix refuses a prefix that would change the slot of a key.
func CheckPrefix(prefix string) error {
	if strings.ContainsAny(prefix, "{}") {
		return &driver.Error{Code: driver.ErrInvalid, Op: "open", Field: "Prefix", Detail: "contains a brace"}
	}
	return nil
}
