// Package cli is the program mailbox, the command line of the daemon. Program runs
// it with given streams, arguments and environment, so that tests run the same code as
// users.
//
// Messages are sent over OAP/1, through package remotebox, if its address
// is known, and over HTTP otherwise. Administration uses HTTP.
// Tokens are narrowed and inspected without a daemon.
//
// Each command has a file. Shared are the address and the token
// (address.go, connection.go), the HTTP client (api.go), the output (output.go), and
// the explanations and exit codes of errors (failure.go).
package cli
