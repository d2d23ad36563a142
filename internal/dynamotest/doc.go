// Package dynamotest runs a real dynalite for tests, an implementation of
// DynamoDB that keeps its tables in memory. It is a process of its own on a free
// port of the loopback interface.
//
//	func TestMain(m *testing.M) { dynamotest.Main(m) }
//
//	client := dynamotest.Shared(t).Client()
//
// What is started ends with the test, or with Main, and also when the test
// process is killed. Tests fail when dynalite is missing, and are never skipped;
// tools/dynalite.sh installs it.
//
// Clients also work inside a synctest bubble, see [Server.Outside]. Time there
// stands still while DynamoDB works.
package dynamotest
