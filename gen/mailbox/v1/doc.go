// Package mailboxv1 holds the messages of mailboxd's gRPC and Connect surface. It
// is generated from proto/mailbox/v1, which says what each call does; package
// mailboxv1connect has the client and the server.
//
// Programs in Go are better off with package mailbox. This one is for those who
// need the wire itself.
package mailboxv1

//go:generate go -C ../../.. run -modfile=tools/proto.mod proto/generate.go proto/reference.go
