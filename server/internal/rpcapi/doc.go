// Package rpcapi is the daemon's surface in gRPC, gRPC-Web and Connect, all three
// on one net/http handler. It reads requests strictly, hands them to the broker,
// and writes the answers; proto/mailbox/v1 describes both sides.
//
// # Strictness
//
// A request with a field that the daemon does not know is refused, in JSON and in
// binary. Protobuf would let it pass, so that old servers can talk to new
// clients; but a client that asks for something that does not happen has lost
// more than one that is told so. What binary Protobuf allows beyond that stays
// allowed, because its encoders rely on it: a field that comes twice has the
// value that comes last.
//
// # Bounds
//
// A frame of more than 1 MiB is refused when its length is known, which is before
// it is read. Requests must arrive, and answers must be read, within a time.
// Answers are not compressed: payloads are opaque, and who wants them small sends
// them small.
//
// # Streams
//
// Lists are streamed in chunks of about 64 KiB, and the client's reading holds
// them up. Receiving as a stream goes both ways, because the credit must come
// from who knows when it is due. The alternative, a stream of the server's alone
// with a bound on what is in flight, would have the server guess from the acks
// when a delivery is done with; it does not see those that go to another daemon
// or come on another surface.
package rpcapi
