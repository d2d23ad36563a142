// Package storetest has disks for tests of what is built on package store:
// disks that lose power, that fail, that lie, and that rot.
//
// A [Disk] lives in memory and remembers what was synced. Every operation on it
// passes a hook, which can make it fail, or take an [Disk.Image]: the disk as it
// might be found after the power was cut at that moment. [IgnoreSyncs] and
// [LoseSeals] are saboteurs: a test suite that does not notice them is not
// testing what it claims. [Flip] changes one bit.
//
// All of it works in a testing/synctest bubble, with one exception: a hook that
// sleeps, to play a slow disk, while several goroutines commit at once. The
// engine sometimes syncs with a lock held, and virtual time does not go on while
// a goroutine waits for a lock. Let one goroutine commit in such a test.
package storetest
