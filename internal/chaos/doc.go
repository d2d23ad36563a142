// Package chaos has two tests. In the first, workers in processes of their own, on Redis, on
// PostgreSQL and on disk, whose handlers fail, panic and hang, which are told to stop and killed at any moment,
// and whose backends go down and come back. In the end every message is acked once or a
// dead letter that says why, the dead letters can be sent back and finished, and what all
// processes did and saw keeps every promise that drivertest checks.
// In the second, on Redis and a daemon, workers are restarted in turn, which costs no message
// an attempt.
//
// The first takes a minute; MAILBOX_VOLUME sets another duration, see package volume.
package chaos
