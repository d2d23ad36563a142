package rpcapi_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/envelope"
	mailboxv1 "github.com/mailboxmq/mailbox/gen/mailbox/v1"
	"github.com/mailboxmq/mailbox/gen/mailbox/v1/mailboxv1connect"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/server/internal/broker"
	"github.com/mailboxmq/mailbox/server/internal/rpcapi"
)

// protocols are those that one handler speaks.
var protocols = map[string]connect.ClientOption{
	"gRPC":         connect.WithGRPC(),
	"gRPC-Web":     connect.WithGRPCWeb(),
	"Connect":      connect.WithClientOptions(),
	"Connect JSON": connect.WithProtoJSON(),
}

func eachProtocol(t *testing.T, test func(t *testing.T, d *daemon, protocol connect.ClientOption)) {
	t.Helper()
	for name, protocol := range protocols {
		t.Run(name, func(t *testing.T) {
			withDaemon(t, func(t *testing.T, d *daemon) { test(t, d, protocol) })
		})
	}
}

func TestAMessageGoesThroughEveryProtocol(t *testing.T) {
	eachProtocol(t, func(t *testing.T, d *daemon, protocol connect.ClientOption) {
		rpc := d.rpc(d.mint(t, ""), protocol)
		payload := []byte{0, 1, 0xff}
		sent, err := rpc.Send(t.Context(), &mailboxv1.SendRequest{Topic: "orders", Messages: []*mailboxv1.Outgoing{
			{Payload: payload, IdemKey: "k1", Attrs: map[string]string{"kind": "test"}},
		}})
		if err != nil {
			t.Fatal(err)
		}
		got, err := rpc.Recv(t.Context(), &mailboxv1.RecvRequest{Topic: "orders"})
		if err != nil || len(got.GetMessages()) != 1 {
			t.Fatalf("got %v, %v", got, err)
		}
		m := got.GetMessages()[0]
		e := m.GetEnvelope()
		if e.GetMsgId() != sent.GetResults()[0].GetMsgId() || !bytes.Equal(m.GetPayload(), payload) || e.GetIdemKey() != "k1" || e.GetAttempt() != 1 {
			t.Errorf("got %v", m)
		}
		if want := envelope.HashPayload(payload).String(); e.GetPayloadHash() != want {
			t.Errorf("payload_hash is %q, want %q", e.GetPayloadHash(), want)
		}
		acked, err := rpc.Ack(t.Context(), &mailboxv1.AckRequest{Topic: "orders", Deliveries: []*mailboxv1.DeliveryRef{{Receipt: m.GetReceipt()}}})
		if err != nil || acked.GetResults()[0].GetError() != nil {
			t.Errorf("ack: %v, %v", acked, err)
		}
	})
}

// TestErrorsHaveTheirDetails holds the promise of the proto file: a status, one
// ErrorDetail, and where it helps a time to come back.
func TestErrorsHaveTheirDetails(t *testing.T) {
	eachProtocol(t, func(t *testing.T, d *daemon, protocol connect.ClientOption) {
		corr := http.Header{"X-Corr-Id": {"trace-7"}}
		client := func(token capability.Token) mailboxv1connect.MailboxClient {
			return mailboxv1connect.NewMailboxClient(d.client, "http://daemon", protocol, connect.WithInterceptors(shows{token, corr}))
		}
		all := client(d.mint(t, ""))
		for _, test := range []struct {
			name, code string
			grpc       connect.Code
			call       func(ctx context.Context) error
		}{
			{"no token", "E_CAP_AUTH", connect.CodeUnauthenticated, func(ctx context.Context) error {
				_, err := client(capability.Token{}).Stats(ctx, &mailboxv1.StatsRequest{Topic: "orders"})
				return err
			}},
			{"a token that is not for this", "E_CAP_SCOPE", connect.CodePermissionDenied, func(ctx context.Context) error {
				_, err := client(d.mint(t, "", capability.Operations(capability.OpStats))).Purge(ctx, &mailboxv1.PurgeRequest{Topic: "orders"})
				return err
			}},
			{"no such topic", "E_NOT_FOUND", connect.CodeNotFound, func(ctx context.Context) error {
				_, err := all.Stats(ctx, &mailboxv1.StatsRequest{Topic: "nothing"})
				return err
			}},
			{"a bad value", "E_SCHEMA", connect.CodeInvalidArgument, func(ctx context.Context) error {
				_, err := all.Recv(ctx, &mailboxv1.RecvRequest{Topic: "orders", VisibilityMs: proto.Float64(249)})
				return err
			}},
			{"no number", "E_SCHEMA", connect.CodeInvalidArgument, func(ctx context.Context) error {
				_, err := all.Recv(ctx, &mailboxv1.RecvRequest{Topic: "orders", WaitMs: nan()})
				return err
			}},
			{"too large", "E_FRAME_TOO_LARGE", connect.CodeResourceExhausted, func(ctx context.Context) error {
				_, err := all.Send(ctx, &mailboxv1.SendRequest{Topic: "orders", Messages: []*mailboxv1.Outgoing{{Payload: make([]byte, rpcapi.MaxFrameBytes)}}})
				return err
			}},
			{"draining", "E_UNAVAILABLE", connect.CodeUnavailable, func(ctx context.Context) error {
				d.broker.SetState(broker.StateReadOnly)
				_, err := all.Send(ctx, &mailboxv1.SendRequest{Topic: "orders", Keyless: true, Messages: []*mailboxv1.Outgoing{{}}})
				return err
			}},
			{"a stream", "E_NOT_FOUND", connect.CodeNotFound, func(ctx context.Context) error {
				s, err := all.Peek(ctx, &mailboxv1.PeekRequest{Topic: "nothing"})
				if err != nil {
					return err
				}
				defer s.Close()
				s.Receive()
				return s.Err()
			}},
		} {
			err := test.call(t.Context())
			detail := detailOf(err)
			if connect.CodeOf(err) != test.grpc || detail.GetCode() != test.code || detail.GetCorrId() != "trace-7" {
				t.Errorf("%s: got %v with %v", test.name, err, detail)
			}
			e, _ := errors.AsType[*connect.Error](err)
			retries := detail.GetRetryAfterMs() > 0
			if retries != (test.code == "E_UNAVAILABLE") || retries != (e.Meta().Get("Retry-After") != "") || retries != (retryInfo(e) > 0) {
				t.Errorf("%s: retry after %v ms, %v", test.name, detail.GetRetryAfterMs(), e.Meta())
			}
			if e.Meta().Get("X-Corr-Id") != "trace-7" {
				t.Errorf("%s: the correlation id did not come back: %v", test.name, e.Meta())
			}
		}
	})
}

func nan() float64 {
	zero := 0.0
	return zero / zero
}

// retryInfo reads a google.rpc.RetryInfo as its own package would.
func retryInfo(e *connect.Error) (seconds uint64) {
	for _, d := range e.Details() {
		if d.Type() != "google.rpc.RetryInfo" {
			continue
		}
		_, _, n := protowire.ConsumeTag(d.Bytes())
		delay, _ := protowire.ConsumeBytes(d.Bytes()[n:])
		_, _, n = protowire.ConsumeTag(delay)
		seconds, _ = protowire.ConsumeVarint(delay[n:])
	}
	return seconds
}

// post makes a call without a generated client.
func (d *daemon) post(t *testing.T, client *http.Client, procedure, contentType string, body io.Reader) (status int, answer []byte, header http.Header) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://daemon/mailbox.v1.Mailbox/"+procedure, body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", contentType)
	r.Header.Set("Authorization", "Bearer "+d.mint(t, "").Reveal())
	response, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	answer, err = io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	for key, values := range response.Trailer {
		response.Header[key] = values
	}
	return response.StatusCode, answer, response.Header
}

// TestCurlWorks speaks Connect in JSON over HTTP/1.1, by hand.
func TestCurlWorks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memoryDaemon(t)
		transport := d.transport(func(p *http.Protocols) { p.SetHTTP1(true) })
		defer transport.CloseIdleConnections()
		client := &http.Client{Transport: transport}
		for _, kind := range []string{"application/json", "application/json; charset=utf-8"} {
			status, answer, header := d.post(t, client, "Send", kind, strings.NewReader(`{"topic":"orders","keyless":true,"messages":[{"payload":"aGk=","delay_ms":0.5}]}`))
			if status != http.StatusOK || !bytes.Contains(answer, []byte(`"msg_id"`)) || header.Get("X-Corr-Id") == "" {
				t.Errorf("send: %d %s %v", status, answer, header)
			}
		}
		time.Sleep(10 * time.Second) // the deadlines of the first calls are not those of the next
		status, answer, _ := d.post(t, client, "Recv", "application/json", strings.NewReader(`{"topic":"orders","max_messages":2}`))
		if status != http.StatusOK || bytes.Count(answer, []byte(`"aGk="`)) != 2 {
			t.Errorf("recv: %d %s", status, answer)
		}
		if status, _, _ := d.post(t, client, "RecvStream", "application/connect+json", nil); status != http.StatusHTTPVersionNotSupported {
			t.Errorf("a stream in both directions over HTTP/1.1: %d", status)
		}
	})
}

func TestALongPollOutlastsTheTimeToSendARequest(t *testing.T) {
	for name, set := range map[string]func(*http.Protocols){
		"HTTP/1.1": func(p *http.Protocols) { p.SetHTTP1(true) }, "HTTP/2": func(p *http.Protocols) { p.SetUnencryptedHTTP2(true) },
	} {
		t.Run(name, func(t *testing.T) {
			withDaemon(t, func(t *testing.T, d *daemon) {
				transport := d.transport(set)
				defer transport.CloseIdleConnections()
				began := time.Now()
				status, answer, _ := d.post(t, &http.Client{Transport: transport}, "Recv", "application/json", strings.NewReader(`{"topic":"orders","wait_ms":60000}`))
				if took := time.Since(began); status != http.StatusOK || took != time.Minute {
					t.Errorf("got %d %s after %v", status, answer, took)
				}
			})
		})
	}
}

func TestWhatIsNotUnderstoodIsRefused(t *testing.T) {
	unknown := protowire.AppendVarint(protowire.AppendTag(nil, 99, protowire.VarintType), 1)
	inside := protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), unknown)
	for name, test := range map[string]struct{ contentType, body string }{
		"unknown field":              {"application/json", `{"topic":"orders","color":"red"}`},
		"unknown field inside":       {"application/json", `{"topic":"orders","messages":[{"color":"red"}]}`},
		"field twice":                {"application/json", `{"topic":"orders","topic":"orders"}`},
		"key twice":                  {"application/json", `{"topic":"orders","messages":[{"attrs":{"a":"1","a":"2"}}]}`},
		"wrong type":                 {"application/json", `{"topic":7}`},
		"trailing data":              {"application/json", `{"topic":"orders"} {}`},
		"no object":                  {"application/json", `[]`},
		"nothing":                    {"application/json", ``},
		"unknown field, binary":      {"application/proto", string(unknown)},
		"unknown field inside, same": {"application/proto", string(inside)},
		"not UTF-8":                  {"application/proto", "\x0a\x01\xff"},
		"cut":                        {"application/proto", "\x0a\x7fshort"},
	} {
		t.Run(name, func(t *testing.T) {
			withDaemon(t, func(t *testing.T, d *daemon) {
				status, answer, _ := d.post(t, d.client, "Send", test.contentType, strings.NewReader(test.body))
				// It must be the request as such that is refused, and not what is missing in it.
				if status != http.StatusBadRequest || !hasCode(t, answer, "E_SCHEMA") || !bytes.Contains(answer, []byte("invalid argument: body: ")) {
					t.Errorf("got %d %s", status, answer)
				}
				if _, err := d.backend.(driver.Admin).QueueConfig(t.Context(), "orders"); !errors.Is(err, driver.ErrNotFound) {
					t.Errorf("the call made the topic all the same: %v", err)
				}
			})
		})
	}
}

// hasCode reports whether an error of Connect in JSON has an ErrorDetail with a
// code.
func hasCode(t *testing.T, answer []byte, code string) bool {
	t.Helper()
	var e struct {
		Details []struct {
			Type  string
			Value string
		}
	}
	if err := json.Unmarshal(answer, &e); err != nil {
		t.Errorf("%v: %s", err, answer)
		return false
	}
	return len(e.Details) > 0 && e.Details[0].Type == "mailbox.v1.ErrorDetail" &&
		strings.Contains(decode(e.Details[0].Value), code)
}

// endless is a body that never ends, and knows how much of it was read.
type endless struct {
	head []byte
	read int
}

func (e *endless) Read(p []byte) (int, error) {
	n := copy(p, e.head)
	e.head = e.head[n:]
	if n == 0 {
		n = len(p)
	}
	e.read += n
	return n, nil
}

func TestAnOversizedFrameIsRefusedBeforeItIsRead(t *testing.T) {
	announced := binary.BigEndian.AppendUint32([]byte{0}, 1<<31)
	for name, test := range map[string]struct {
		procedure, contentType string
		head                   []byte
		most                   int
	}{
		// What is read is what the windows of HTTP/2 let through meanwhile.
		"gRPC":           {"Send", "application/grpc", announced, 2 << 20},
		"gRPC-Web":       {"Send", "application/grpc-web", announced, 2 << 20},
		"gRPC stream":    {"RecvStream", "application/grpc", announced, 2 << 20},
		"Connect stream": {"RecvStream", "application/connect+proto", announced, 2 << 20},
		"Connect":        {"Send", "application/proto", nil, 4 << 20},
		"Connect JSON":   {"Send", "application/json", []byte(`{"topic":"`), 4 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			withDaemon(t, func(t *testing.T, d *daemon) {
				body := &endless{head: test.head}
				_, answer, header := d.post(t, d.client, test.procedure, test.contentType, body)
				synctest.Wait()
				if body.read > test.most {
					t.Errorf("%d bytes were taken", body.read)
				}
				// gRPC-Web writes its trailers into the body if there is one.
				if header.Get("Grpc-Status") != "8" && !bytes.Contains(answer, []byte("resource_exhausted")) {
					t.Errorf("got %q %v", answer, header)
				}
			})
		})
	}
}

func TestAClientThatDoesNotFinishItsRequestIsGivenUp(t *testing.T) {
	withDaemon(t, func(t *testing.T, d *daemon) {
		reader, writer := io.Pipe()
		defer writer.Close()
		began := time.Now()
		_, answer, _ := d.post(t, d.client, "Send", "application/json", reader)
		if took := time.Since(began); took != rpcapi.DefaultReadTimeout || !hasCode(t, answer, "E_UNAVAILABLE") {
			t.Errorf("after %v: %s", took, answer)
		}
	})
}

func TestAnAckCanBeRepeatedByMessageID(t *testing.T) {
	withDaemon(t, func(t *testing.T, d *daemon) {
		rpc := d.rpc(d.mint(t, ""), connect.WithGRPC())
		send(t, rpc, 2)
		got, err := rpc.Recv(t.Context(), &mailboxv1.RecvRequest{Topic: "orders", VisibilityMs: proto.Float64(1000)})
		if err != nil || len(got.GetMessages()) != 2 {
			t.Fatalf("got %v, %v", got, err)
		}
		first, second := got.GetMessages()[0], got.GetMessages()[1]
		refs := []*mailboxv1.DeliveryRef{
			{MsgId: first.GetEnvelope().GetMsgId()},                // the lease is the token's own
			{Receipt: second.GetReceipt()},                         // by receipt
			{Receipt: second.GetReceipt(), MsgId: "01ARZ3NDEKTSV"}, // of another message
			{}, // of none
		}
		for attempt, want := range [][]string{{"", "", "E_SCHEMA", "E_SCHEMA"}, {"", "E_NOT_FOUND", "E_SCHEMA", "E_SCHEMA"}} {
			acked, err := rpc.Ack(t.Context(), &mailboxv1.AckRequest{Topic: "orders", Deliveries: refs})
			if err != nil {
				t.Fatal(err)
			}
			for i, result := range acked.GetResults() {
				if code := result.GetError().GetCode(); code != want[i] {
					t.Errorf("attempt %d, position %d: got %q, want %q: %v", attempt+1, i, code, want[i], result)
				}
			}
		}
	})
}

func TestANackWithoutADelayBacksOff(t *testing.T) {
	withDaemon(t, func(t *testing.T, d *daemon) {
		rpc := d.rpc(d.mint(t, ""), connect.WithGRPC())
		send(t, rpc, 20)
		got, err := rpc.Recv(t.Context(), &mailboxv1.RecvRequest{Topic: "orders"})
		if err != nil {
			t.Fatal(err)
		}
		nack := &mailboxv1.NackRequest{Topic: "orders"}
		for _, m := range got.GetMessages() {
			nack.Entries = append(nack.Entries, &mailboxv1.NackEntry{Delivery: &mailboxv1.DeliveryRef{Receipt: m.GetReceipt()}, Cause: "busy"})
		}
		if _, err := rpc.Nack(t.Context(), nack); err != nil {
			t.Fatal(err)
		}
		if left := stats(t, rpc); left.Delayed < 10 {
			t.Errorf("after nacks without a delay there are %+v", left)
		}
	})
}

// TestALargeAnswerIsCutAndNothingIsLost has attributes that make an answer larger
// than clients accept.
func TestALargeAnswerIsCutAndNothingIsLost(t *testing.T) {
	withDaemon(t, func(t *testing.T, d *daemon) {
		rpc := d.rpc(d.mint(t, ""), connect.WithGRPC())
		for range 80 {
			m := &mailboxv1.Outgoing{Attrs: map[string]string{"a": strings.Repeat("x", 60<<10)}}
			if _, err := rpc.Send(t.Context(), &mailboxv1.SendRequest{Topic: "orders", Keyless: true, Messages: []*mailboxv1.Outgoing{m}}); err != nil {
				t.Fatal(err)
			}
		}
		seen := make(map[string]bool)
		for range 2 {
			got, err := rpc.Recv(t.Context(), &mailboxv1.RecvRequest{Topic: "orders", MaxMessages: proto.Int32(200), VisibilityMs: proto.Float64(60_000)})
			if err != nil {
				t.Fatal(err)
			}
			if size := proto.Size(got); size > 3<<20 {
				t.Errorf("an answer has %d bytes", size)
			}
			for _, m := range got.GetMessages() {
				seen[m.GetEnvelope().GetMsgId()] = true
			}
		}
		if len(seen) != 80 {
			t.Errorf("got %d of 80 messages", len(seen))
		}
	})
}

func TestListsComeInChunks(t *testing.T) {
	withDaemon(t, func(t *testing.T, d *daemon) {
		rpc := d.rpc(d.mint(t, ""), connect.WithGRPC())
		const n = 300
		r := &mailboxv1.SendRequest{Topic: "orders", Keyless: true}
		for range n {
			r.Messages = append(r.Messages, &mailboxv1.Outgoing{Payload: make([]byte, 2<<10)})
		}
		for part := range 2 { // the backend takes 256 at a time
			half := &mailboxv1.SendRequest{Topic: "orders", Keyless: true, Messages: r.GetMessages()[part*n/2 : (part+1)*n/2]}
			if _, err := rpc.Send(t.Context(), half); err != nil {
				t.Fatal(err)
			}
		}
		s, err := rpc.Peek(t.Context(), &mailboxv1.PeekRequest{Topic: "orders"})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		chunks, total := 0, 0
		for s.Receive() {
			chunks++
			total += len(s.Msg().GetMessages())
			if size := proto.Size(s.Msg()); size > 80<<10 {
				t.Errorf("a chunk has %d bytes", size)
			}
		}
		if s.Err() != nil || total != n || chunks < 9 {
			t.Errorf("got %d messages in %d chunks, %v", total, chunks, s.Err())
		}
	})
}

func TestAMessageWithoutAKeyMustBeMeant(t *testing.T) {
	withDaemon(t, func(t *testing.T, d *daemon) {
		rpc := d.rpc(d.mint(t, ""), connect.WithGRPC())
		r := &mailboxv1.SendRequest{Topic: "orders", Messages: []*mailboxv1.Outgoing{{IdemKey: "1"}, {}, {IdemKey: "2"}}}
		for _, keyless := range []bool{false, true} {
			r.Keyless = keyless
			sent, err := rpc.Send(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			for i, result := range sent.GetResults() {
				refused := result.GetError().GetField() == "idem_key"
				if refused != (i == 1 && !keyless) || (result.GetMsgId() == "") != refused {
					t.Errorf("keyless is %v, position %d: %v", keyless, i, result)
				}
			}
		}
		if left := stats(t, rpc); left.Ready != 3 {
			t.Errorf("there are %+v", left)
		}
	})
}

func TestTheLifeOfAMessageCanBeFollowed(t *testing.T) {
	withDaemon(t, func(t *testing.T, d *daemon) {
		rpc := d.rpc(d.mint(t, ""), connect.WithGRPC())
		send(t, rpc, 1)
		got, err := rpc.Recv(t.Context(), &mailboxv1.RecvRequest{Topic: "orders"})
		if err != nil {
			t.Fatal(err)
		}
		id := got.GetMessages()[0].GetEnvelope().GetMsgId()
		life, err := rpc.Life(t.Context(), &mailboxv1.LifeRequest{Topic: "orders", MsgId: id})
		if err != nil {
			t.Fatal(err)
		}
		var kinds []string
		for _, e := range life.GetEvents() {
			kinds = append(kinds, e.GetKind())
		}
		if fmt.Sprint(kinds) != "[sent delivered]" || life.GetMessage().GetState() != mailboxv1.MessageState_MESSAGE_STATE_IN_FLIGHT {
			t.Errorf("got %v, %v", kinds, life.GetMessage())
		}
	})
}

// brokenBackend is one that does not answer, for a reason that is nobody's
// business.
type brokenBackend struct{ *membox.Backend }

func (brokenBackend) Ping(context.Context) error { return errors.New("dial 10.0.0.7: secret") }

func TestWhatIsBehindTheDaemonStaysThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon(t, brokenBackend{membox.New(nil)}, broker.Limits{})
		_, err := d.rpc(d.mint(t, ""), connect.WithGRPC()).Ping(t.Context(), &mailboxv1.PingRequest{})
		if detailOf(err).GetCode() != "E_UNAVAILABLE" || strings.Contains(fmt.Sprint(err, detailOf(err)), "secret") {
			t.Errorf("got %v", err)
		}
		d.stop()
	})
}

// decode reads base64 without padding, as Connect writes it.
func decode(text string) string {
	raw, _ := base64.RawStdEncoding.DecodeString(text)
	return string(raw)
}
