package rpcapi

import (
	"context"
	"fmt"
	"net/http"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/mailboxmq/mailbox/gen/mailbox/v1/mailboxv1connect"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

// healthService is the gRPC health service for load balancers and probes. It needs no
// token and returns the result of GET /readyz. Watch is not implemented, which clients
// take for healthy: a client without a token must not hold a stream open.
const healthService = "grpc.health.v1.Health"

const healthCheck = "/" + healthService + "/Check"

// The statuses of grpc.health.v1.
const (
	healthServing    = 1
	healthNotServing = 2
)

// healthRequest and healthResponse are grpc.health.v1.HealthCheckRequest and
// HealthCheckResponse. They have one field each.
type healthRequest struct{ service string }

type healthResponse struct{ status uint64 }

// newHealth returns the handler of checks.
func newHealth(b *broker.Broker, bounds connect.HandlerOption) http.Handler {
	return connect.NewUnaryHandler(healthCheck,
		func(_ context.Context, r *connect.Request[healthRequest]) (*connect.Response[healthResponse], error) {
			switch r.Msg.service {
			case "", mailboxv1connect.MailboxName:
			default:
				return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("unknown service"))
			}
			status := uint64(healthServing)
			if b.State() != broker.StateServing {
				status = healthNotServing
			}
			return connect.NewResponse(&healthResponse{status}), nil
		},
		connect.WithCodec(healthCodec{}), bounds)
}

// healthCodec reads and writes both messages, which are too small to be generated.
type healthCodec struct{}

// Name is that of the binary form of protocol buffers.
func (healthCodec) Name() string { return "proto" }

// Marshal writes an answer.
func (healthCodec) Marshal(message any) ([]byte, error) {
	response, ok := message.(*healthResponse)
	if !ok {
		return nil, fmt.Errorf("a %T cannot be written", message)
	}
	return protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), response.status), nil
}

// Unmarshal reads a request. It ignores fields of later versions.
func (healthCodec) Unmarshal(b []byte, message any) error {
	request, ok := message.(*healthRequest)
	if !ok {
		return fmt.Errorf("a %T cannot be read", message)
	}
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		if number == 1 && kind == protowire.BytesType {
			text, n := protowire.ConsumeString(b)
			if n < 0 {
				return protowire.ParseError(n)
			}
			request.service, b = text, b[n:]
			continue
		}
		if n = protowire.ConsumeFieldValue(number, kind, b); n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
	}
	return nil
}
