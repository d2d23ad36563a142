// Package gates tests the promises of the daemon from outside: its tests
// build mailboxd, run it as a separate process, alone or in pairs on a Redis
// Cluster, and speak HTTP, gRPC and OAP/1 to it over sockets. Each gate of
// docs/invariants.md has a test here that is named after it.
//
// Every test prints its figures. Some volumes can be increased: see
// the target gates of the Makefile.
package gates
