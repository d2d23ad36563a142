// Package keyring has the keys of a daemon: it mints tokens with one of them, accepts those of
// earlier ones, and changes the file of the keys under a lock that excludes other processes.
//
// [Ring.WriteFile] writes a file for its owner only: "mailbox keys 1", a line for each key (id,
// secret in hex, when it was retired in Unix milliseconds or 0, when it was made if that is known),
// the current key first, and CRC-32C of all that in 8 hex digits.
package keyring
