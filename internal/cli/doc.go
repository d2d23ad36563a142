// Package cli is the program mailbox: the command line of the daemon. Program runs
// it with given streams, arguments and environment, so that tests run what users
// run.
//
// Messages travel over OAP/1 frames, through package remotebox, where an address
// for them is known, and over HTTP otherwise. Administration goes over HTTP.
// Tokens are narrowed and read here, without a daemon.
//
// Each command is a file. What they share is the address and the token
// (connection.go), the HTTP client (api.go), what is printed (output.go), and
// what errors mean for people and scripts (failure.go).
package cli
