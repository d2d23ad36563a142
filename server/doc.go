// Package server is mailboxd as a package: the daemon that puts capability tokens,
// integrity, bounds, retention, metrics and wire protocols in front of a backend.
// The program cmd/mailboxd is little more than a call of it, and so is a daemon in
// somebody's test:
//
//	daemon, err := server.New(server.Config{Profile: server.Micronode, Listen: "127.0.0.1:0"}, nil)
//	…
//	go func() { done <- daemon.Run(ctx) }()
//	<-daemon.Started()
//	url := "http://" + daemon.Address(server.HTTP)
//	token := daemon.OperatorToken()
//
// # Configuration
//
// [Load] reads a [Config] as the program does: flags win over variables of the
// environment (MAILBOXD_…), these over a file of TOML, and that over the defaults
// of the profile. Everything is strict: a key that nobody knows, or a value that
// makes no sense, is an error in a sentence, and nothing is started.
//
// # Profiles
//
// A micronode is one process with its messages in memory. With amnesia, its
// default, it never writes a file: keys and tokens live as long as it does. A
// macronode keeps its messages on disk, or in Redis.
package server
