// Package volume says how much of the same a test does.
//
// A test that plays random programs or sends thousands of messages does most of them to
// find what happens rarely. The race detector makes it ten times slower, and what it
// looks for, two goroutines at one place, is there from the first hundred. So such tests
// do a part of it under the race detector, and all of it without; make test runs them
// both ways.
package volume
