// Package redistest runs real Redis servers for tests: alone, watched by
// sentinels, or as a cluster. Each server is a process of its own on a free
// port of the loopback interface, with a directory of its own.
//
//	server := redistest.Standalone(t, redistest.AppendOnly(redistest.FsyncAlways))
//	client, err := rueidis.NewClient(server.ClientOption())
//	…
//	server.Kill()
//	err = server.Restart()
//
// Servers that a constructor starts end with its test, and on Linux also when the test
// process is killed. Starting a cluster takes seconds, so tests that do not damage it can
// share one, see [SharedCluster].
//
// Without redis-server, which make setup installs, constructors skip the test, or fail it under
// make. All other functions return errors, because tests often cause failures from goroutines, which must
// not end a test.
package redistest
