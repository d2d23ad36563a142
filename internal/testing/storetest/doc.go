// Package storetest has disks for tests of package store and its users: disks
// that lose power, fail, ignore syncs, and have flipped bits.
//
// A [Disk] is in memory and tracks what was synced. Every operation on it
// passes a hook, which can make it fail, or take an [Disk.Image]: the disk as it
// might be after a power cut at that moment. [IgnoreSyncs] and [LoseSeals] are
// saboteurs: a test that does not detect them does not test what it claims.
// [Flip] changes one bit.
//
// All of it works in a testing/synctest bubble, with one exception: a hook that
// sleeps, to simulate a slow disk, while several goroutines commit at once. The
// engine sometimes syncs with a lock held, and virtual time does not pass while
// a goroutine waits for a lock. Let one goroutine commit in such a test.
package storetest
