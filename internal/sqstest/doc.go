// Package sqstest runs a real fauxqs for tests, an implementation of SQS by others
// that keeps its queues in memory. It is a process of its own on a free port of the
// loopback interface.
//
//	func TestMain(m *testing.M) { sqstest.Main(m) }
//
//	client := sqstest.Shared(t).Client()
//
// What is started ends with the test, or with Main, and also when the test process
// is killed. Tests fail when fauxqs is missing, and are never skipped;
// tools/fauxqs.sh, which is part of make servers, installs it.
package sqstest
