// Package telemetry defines what Mailbox measures: a table of instruments, and the hooks
// that feed them. All adapters to metrics libraries use it, so they measure the same
// things under the same names.
package telemetry
