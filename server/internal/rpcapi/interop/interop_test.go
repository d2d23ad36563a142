package interop

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/metadata"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/mailboxmq/mailbox/capability"
	mailboxv1 "github.com/mailboxmq/mailbox/gen/mailbox/v1"
	"github.com/mailboxmq/mailbox/internal/keyring"
	"github.com/mailboxmq/mailbox/internal/verify"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/server/internal/broker"
	"github.com/mailboxmq/mailbox/server/internal/rpcapi"
)

// dial starts a daemon on loopback and returns a connection to it, and a context
// with a token.
func dial(t *testing.T) (context.Context, *grpc.ClientConn, *broker.Broker) {
	t.Helper()
	ring := keyring.New(keyring.NewKey())
	b, err := broker.New(broker.Options{Opener: membox.New(nil), Ring: ring, Verifier: verify.New(ring, nil)})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: rpcapi.New(rpcapi.Options{Broker: b}), Protocols: rpcapi.Protocols(), ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	token, err := ring.Mint("", capability.AllOperations(), capability.Queues(capability.AnyQueue()), capability.ExpiresAt(time.Now().Add(time.Hour)))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token.Reveal(), "x-corr-id", "trace-7"), conn, b
}

const service = "/mailbox.v1.Mailbox/"

func TestGRPCGoSendsReceivesAndAcks(t *testing.T) {
	ctx, conn, _ := dial(t)
	sent := &mailboxv1.SendResponse{}
	var header metadata.MD
	err := conn.Invoke(ctx, service+"Send", &mailboxv1.SendRequest{Topic: "orders", Messages: []*mailboxv1.Outgoing{
		{Payload: []byte("one"), IdemKey: "1"}, {Payload: []byte("two"), IdemKey: "1"},
	}}, sent, grpc.Header(&header), grpc.UseCompressor(gzip.Name))
	if err != nil || sent.GetResults()[0].GetMsgId() == "" || sent.GetResults()[1].GetError().GetCode() != "E_DUPLICATE" {
		t.Fatalf("send: %v, %v", sent, err)
	}
	if got := header.Get("x-corr-id"); len(got) != 1 || got[0] != "trace-7" {
		t.Errorf("the correlation id came back as %q", got)
	}
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, service+"RecvStream")
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.SendMsg(&mailboxv1.RecvStreamRequest{Topic: "orders", Credit: 1}); err != nil {
		t.Fatal(err)
	}
	got := &mailboxv1.RecvStreamResponse{}
	if err := stream.RecvMsg(got); err != nil || string(got.GetMessages()[0].GetPayload()) != "one" {
		t.Fatalf("recv: %v, %v", got, err)
	}
	acked := &mailboxv1.AckResponse{}
	ref := &mailboxv1.DeliveryRef{Receipt: got.GetMessages()[0].GetReceipt()}
	if err := conn.Invoke(ctx, service+"Ack", &mailboxv1.AckRequest{Topic: "orders", Deliveries: []*mailboxv1.DeliveryRef{ref}}, acked); err != nil || acked.GetResults()[0].GetError() != nil {
		t.Errorf("ack: %v, %v", acked, err)
	}
	if err := stream.SendMsg(&mailboxv1.RecvStreamRequest{Stop: true}); err != nil {
		t.Fatal(err)
	}
	if err := stream.RecvMsg(got); !errors.Is(err, io.EOF) {
		t.Errorf("a stopped stream ended with %v", err)
	}
}

func TestGRPCGoReadsTheDetailsOfErrors(t *testing.T) {
	ctx, conn, b := dial(t)
	b.SetState(broker.StateReadOnly)
	err := conn.Invoke(ctx, service+"Send", &mailboxv1.SendRequest{Topic: "orders", Keyless: true, Messages: []*mailboxv1.Outgoing{{}}}, &mailboxv1.SendResponse{})
	s := status.Convert(err)
	if s.Code() != codes.Unavailable || len(s.Details()) != 2 {
		t.Fatalf("got %v, %v", err, s.Details())
	}
	detail, ok := s.Details()[0].(*mailboxv1.ErrorDetail)
	if !ok || detail.GetCode() != "E_UNAVAILABLE" || detail.GetCorrId() != "trace-7" {
		t.Errorf("the detail is %v", s.Details()[0])
	}
	retry, ok := s.Details()[1].(*errdetails.RetryInfo)
	if !ok || retry.GetRetryDelay().AsDuration() != 2*time.Second {
		t.Errorf("the second detail is %v", s.Details()[1])
	}
	err = conn.Invoke(ctx, service+"Send", &mailboxv1.SendRequest{
		Topic: "orders", Messages: []*mailboxv1.Outgoing{{Payload: make([]byte, 2<<20)}},
	}, &mailboxv1.SendResponse{})
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a frame of 2 MiB: %v", err)
	}
	err = conn.Invoke(metadata.NewOutgoingContext(ctx, nil), service+"Stats", &mailboxv1.StatsRequest{}, &mailboxv1.StatsResponse{})
	if status.Code(err) != codes.Unauthenticated {
		t.Errorf("without a token: %v", err)
	}
}

// TestAClientThatKnowsNothingWorks does what grpcurl does: it asks for the service
// by reflection, makes a request of JSON, and prints the answer as JSON.
func TestAClientThatKnowsNothingWorks(t *testing.T) {
	ctx, conn, _ := dial(t)
	method := resolve(ctx, t, conn, "mailbox.v1.Mailbox", "Send")
	request := dynamicpb.NewMessage(method.Input())
	if err := protojson.Unmarshal([]byte(`{"topic":"orders","messages":[{"payload":"aGk=","idem_key":"1"}]}`), request); err != nil {
		t.Fatal(err)
	}
	response := dynamicpb.NewMessage(method.Output())
	if err := conn.Invoke(ctx, service+"Send", request, response); err != nil {
		t.Fatal(err)
	}
	if answer := protojson.Format(response); !strings.Contains(answer, "msgId") {
		t.Errorf("got %s", answer)
	}
}

// resolve asks a server for the description of a method.
func resolve(ctx context.Context, t *testing.T, conn *grpc.ClientConn, serviceName, name string) protoreflect.MethodDescriptor {
	t.Helper()
	stream, err := reflectionpb.NewServerReflectionClient(conn).ServerReflectionInfo(metadata.NewOutgoingContext(ctx, nil)) // needs no token
	if err != nil {
		t.Fatal(err)
	}
	ask := func(r *reflectionpb.ServerReflectionRequest) *reflectionpb.ServerReflectionResponse {
		if err := stream.Send(r); err != nil {
			t.Fatal(err)
		}
		response, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		return response
	}
	listed := ask(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}})
	if services := listed.GetListServicesResponse().GetService(); len(services) != 1 || services[0].GetName() != serviceName {
		t.Errorf("the services are %v", services)
	}
	described := ask(&reflectionpb.ServerReflectionRequest{
		MessageRequest: &reflectionpb.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: serviceName},
	})
	set := &descriptorpb.FileDescriptorSet{}
	for _, raw := range described.GetFileDescriptorResponse().GetFileDescriptorProto() {
		file := &descriptorpb.FileDescriptorProto{}
		if err := proto.Unmarshal(raw, file); err != nil {
			t.Fatal(err)
		}
		set.File = append(set.File, file)
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	files, err := protodesc.NewFiles(set)
	if err != nil {
		t.Fatal(err)
	}
	found, err := files.FindDescriptorByName(protoreflect.FullName(serviceName))
	if err != nil {
		t.Fatal(err)
	}
	return found.(protoreflect.ServiceDescriptor).Methods().ByName(protoreflect.Name(name))
}
