// Package server is mailboxd as a package: the daemon that puts capability tokens,
// integrity, bounds, retention, metrics and wire protocols in front of a backend.
// The program cmd/mailboxd is little more than a call of it. A test can run a daemon in
// its own process:
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
// [Load] reads a [Config] as the program does: flags win over environment variables
// (MAILBOXD_…), these over a TOML file, and that over the defaults of the profile.
// Everything is strict: an unknown key or an invalid value is an error, and nothing is
// started.
//
// # Profiles
//
// A micronode is one process with its messages in memory. With amnesia, its default,
// it never writes a file: keys and tokens are lost when it stops. A macronode keeps
// its messages on disk, in Redis or in PostgreSQL.
package server
