// Package interop proves that the RPC surface works with a client that shares no
// code with it: grpc-go, with generated messages and, as grpcurl does it, with
// nothing but what reflection tells.
package interop
