// Package telemetry says what Mailbox measures: a table of instruments, and the hooks
// that feed them. The adapters to metrics libraries are made of it, so that all of them
// measure the same and call it by the same names.
package telemetry
