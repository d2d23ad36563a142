// Package dynamotest runs dynalite for tests, an implementation of DynamoDB that keeps its
// tables in memory. It is a process of its own on a free loopback port.
//
//	func TestMain(m *testing.M) { dynamotest.Main(m) }
//
//	client := dynamotest.Shared(t).Client()
//
// The server ends with the test, or with Main, even if the test process is killed. make setup
// installs dynalite; without it tests skip, or fail under make.
//
// Clients also work inside a synctest bubble, see [Server.Outside]. Time in the bubble stands
// still during a request.
package dynamotest
