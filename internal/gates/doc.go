// Package gates shows from outside that the daemon does what it says: its tests
// build mailboxd, run it in processes of its own, alone or in pairs on a Redis
// Cluster, and speak HTTP, gRPC and OAP/1 to it over sockets. Each gate of
// docs/invariants.md has a test here that is named after it.
//
// Every test prints its figures. What a figure depends on can be made larger: see
// the target gates of the Makefile.
package gates
