// Package rpcapi is the daemon's surface in gRPC, gRPC-Web and Connect, all three
// on one net/http handler. It reads requests strictly, hands them to the broker,
// and writes the answers; proto/mailbox/v1 describes both sides.
//
// # Strictness
//
// A request with a field that the daemon does not know is refused, in JSON and in
// binary. Protobuf would let it pass, so that old servers can talk to new
// clients; but a refused client is better off than one whose setting is ignored.
// Repeating a field stays allowed in binary, because Protobuf encoders rely on it: the
// last value counts.
//
// # Bounds
//
// A frame of more than 1 MiB, with its head, is refused when its length is known, before
// it is read. Requests must arrive, and answers must be read, within a time.
// Answers are not compressed, because bodies are opaque.
//
// # Streams
//
// Lists are streamed in chunks of about 64 KiB, at the pace of the client. RecvStream
// is bidirectional, because only the client knows when it wants more and sends credit.
// With a server stream and a limit of messages in flight, the server would have to
// derive the credit from acks; it does not see acks at another daemon or surface.
package rpcapi
