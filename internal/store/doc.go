// Package store is the ordered, durable map under the disk backend: atomic
// batches, commits that wait for the disk, iteration from a cursor, range
// deletion, backup. It is Pebble, hardened for messages that must not be lost.
//
// # Promises
//
//   - A commit is present entirely or not at all, after any crash.
//   - A durable commit that returned nil is present after any crash ([SyncEach]).
//   - A directory that was ever a store can be opened after any crash, at any
//     moment, creation and recovery included.
//   - Damage is detected. A changed bit in a file is an error with the name of
//     the file ([driver.ErrIntegrity]), when the store is opened or when the
//     damaged part is read, or it has no effect. Data is never silently lost or
//     wrong. The same holds for missing and truncated files. There is one
//     exception: after a crash, damage in the commits of the very last sync
//     looks like commits that the crash prevented; and if the end of the last
//     log is cut off, so do the commits of the second before the crash.
//   - A single flipped bit in a log or in the MANIFEST is restored; see mender.
//   - After the first failed write or sync, no commit succeeds ([ErrFailed]),
//     nothing more is written, and no caller hangs.
//   - An idle store does nothing: no timer runs.
//
// The tests cut the power before every relevant operation, flip bits in files of
// every kind, and let the n-th operation fail, for every n. They do the same to
// sabotaged stores, to prove that they would detect a fault.
// MAILBOX_VOLUME sets how many images and flips; package storetest has
// the disks.
//
// # On disk
//
//	<dir>/LOCK                 held while the store is open
//	<dir>/BALLAST              given up when the disk is full
//	<dir>/db/                  the engine's directory
//	    MAILBOX_FORMAT         format version, id of the store
//	    MANIFEST-<n>           the engine's list of live tables
//	    seal-MANIFEST-<n>      length and hash of that list
//	    <n>.log                write-ahead logs, with watermarks
//	    seal-logs              which logs there are, how far they are durable, checksums
//	    <n>.sst                tables
//	    OPTIONS-<n> marker.*   more of the engine's
//	<dir>/db.creating/         a store that is being created; stale ones are removed
//	<dir>/db.archive/          a copy that is being written to an archive; likewise
//
// The engine has a directory of its own so that it can be created under another
// name and appear with one rename, even if <dir> is the root of a mounted
// volume or its parent belongs to another user.
//
// MAILBOX_FORMAT and the seals are text. They hold the same lines twice, each
// copy with its checksum, so that a flipped bit in them does no harm.
//
// The logs that the engine keeps for reuse determine the minimum size of a store
// on disk: up to about six times Options.MemTableBytes, which is 96 MiB by
// default on a volume of 1 GiB or more and less on smaller ones, even if the
// store has no message. In memory a store takes up to four times MemTableBytes,
// plus CacheBytes, plus about 64 MiB.
//
// # What is done about the engine's defaults
//
// Each point was measured, and each has a test with its number.
//
//	H1  The engine creates stores in the oldest format it knows. Here it is the
//	    newest, and that is asserted.
//	H2  The first log of a new store is still in the old format, in which a
//	    damaged record silently ends the log. So a new store gets one record, is
//	    flushed, which ends that log, and only then opened for traffic.
//	H3  In the new format logs say how far they were synced, so that damage
//	    before that point can be told from a torn end. But the engine counts only
//	    part of the bytes: the larger the commits, the less is covered (with
//	    commits of 100 KB, 9 of 10 flipped bits went unnoticed). Here every
//	    durable commit carries a watermark: length and checksum of what was
//	    durable before. An idle store writes one that covers everything, as do
//	    Close and Backup. Open checks them before the engine reads the logs.
//	H4  A damaged MANIFEST loses tables, which the engine then deletes. Here its
//	    length and hash are kept in a side file, rewritten after each sync, and
//	    checked before the engine reads it.
//	H5  A crash while the engine makes its first files can leave a directory
//	    that it refuses to open. See above: one rename.
//	H6  A commit is visible to readers before it is durable. This package cannot
//	    change that; see Commit for what callers must do.
//	H7  A failed write makes the engine call Fatalf or panic, some of it with
//	    locks held, and damage in a table makes it call Fatalf too. Here failed
//	    writes do not reach it: see guardFS. Damage is reported, see Corruption.
//	H8  A full disk is a failed write. Here new data is refused while there is
//	    still room (Admit), and a ballast file is removed when there is none.
//	    The ballast is written again when the store is opened again.
//	H9  Deleted keys at the head of a queue cost the caller that scans over them: 53 ms
//	    for 200,000, against 4 µs from a cursor behind them. See Iterator.
//	H10 SingleDelete brings back deleted data when used wrongly, so it is not
//	    offered. Suspected misuse fails the tests.
//	H11 ApplyNoSyncWait is experimental, so it is not used. Operations that must be
//	    readable before they are durable are applied without waiting, and a record
//	    that follows them is synced (CommitThen).
//	H12 A disk that hangs is reported (Health, OnSlowDisk), without the engine's
//	    tickers.
//	H13 Logs are kept for reuse. The minimum size is documented above.
//
// Three more points were found later: the engine's compaction scheduler wakes up
// ten times a second without end, so it is replaced (quietScheduler); a
// checkpoint copies a log while it is written and may copy its end without its
// beginning, so it sees only the stable part (stableLog); and the engine does
// not detect a missing log, so there is a list of logs (logList).
//
// # Costs
//
// If a chunk of a log or a block of a table has a wrong checksum, the engine
// tries every bit of it to find out whether one was flipped. The time grows with
// the square of the size: a few milliseconds for 4 KB, most of a second for
// 32 KB. This slows down the first opening after a crash, and every read of a
// damaged block.
//
// There is no interface for other engines. Callers that need one define it, with
// the methods they use; tests that need a faulty store pass a faulty file system.
package store
