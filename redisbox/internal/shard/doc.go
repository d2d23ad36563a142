// Package shard is all that redisbox says to one shard of a queue, or to one bucket of reply
// slots, on a server: connections and repeated calls (server.go, call.go), confirmation by
// replicas (wait.go), sessions, which make a repeated call take effect once, the shard's clock,
// and the bytes that are stored (encoding.go, config.go, keys.go, schema.go).
//
// Every script in scripts has a method here that packs its arguments and reads its answer:
// sends, receives and settles share calls (batcher.go, batch.go), the others are in the file
// of their subject. What happens to messages is decided by the scripts, whose files have the
// names of the files of internal/engine; fast_*.lua are the common case of batch.lua.
//
// A shard knows no queue operation. It tells its Owner what a call has found.
package shard
