// Module proto pins what makes Go code of the proto files; proto/generate.go says
// how. It has a file of its own beside go.mod, so that these programs and the
// linter do not push each other to other versions.
module github.com/mailboxmq/mailbox/tools/proto

go 1.26.0

tool (
	connectrpc.com/connect/cmd/protoc-gen-connect-go
	google.golang.org/protobuf/cmd/protoc-gen-go
)

require (
	connectrpc.com/connect v1.21.1 // indirect
	github.com/bufbuild/protocompile v0.14.1 // indirect
	golang.org/x/sync v0.20.0 // indirect
	google.golang.org/protobuf v1.36.12 // indirect
)
