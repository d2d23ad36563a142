// Package volume decides how much of the same a test does, and in which part of make test it
// runs.
//
// A test that runs random programs or sends thousands of messages does most of them to find
// what happens rarely. The race detector makes it ten times slower, and finds what it looks
// for in the first hundred. Such tests do a part under the race detector and all of it
// without; make test runs them both ways.
//
// The environment variable MAILBOX_VOLUME changes the volume of all tests that ask [Count] or
// [Duration]:
//
//	unset   the everyday volume, that of go test and make test
//	soak    the volume of make soak, which takes hours
//	N       this number of repetitions, or of seconds
//	10m     this duration, for tests that run for a time
//
// MAILBOX_SEED changes the first seed of tests that ask [Seed]. MAILBOX_REST leaves out the parts
// of tests that call [Whole], which make test has run under the race detector before.
//
// Calls of [Repeats], [InFull], [Alone] and [Measures] mark a test. They are its first
// statement, because tools/marked.awk looks for them there.
package volume
