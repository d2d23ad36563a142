// Package simulation runs the daemon, its computer, its network and its clients in one process
// and in virtual time. Connections are slow, break in the middle of a frame and are refused; the
// power of the daemon's computer fails at any operation on its disk, which loses what was not
// synced; its clock since boot begins at zero after each failure, and its wall clock is up to an
// hour before or after that of its clients. A step of the wall clock is not simulated: TIME-0 lets
// leases last longer then, which the checker does not know. Clients keep their connections through
// all of it, as package remotebox does, and record each call: package internal/testing/history
// checks that no promise was broken.
//
// MAILBOX_SEED sets the seed of the faults and of the clients' choices. It does not
// fix the scheduling of goroutines, so a failure may need several runs of its seed. The number of
// simulations is the volume of the tests, see package volume.
package simulation
