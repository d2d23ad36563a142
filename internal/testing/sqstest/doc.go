// Package sqstest runs fauxqs for tests, an independent implementation of SQS that keeps its
// queues in memory. It is a process of its own on a free loopback port.
//
//	func TestMain(m *testing.M) { sqstest.Main(m) }
//
//	client := sqstest.Shared(t).Client()
//
// The server ends with the test, or with Main, even if the test process is killed. make setup
// installs fauxqs; without it tests skip, or fail under make.
package sqstest
