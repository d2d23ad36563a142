package rpcapi_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/mailboxmq/mailbox/envelope"
	mailboxv1 "github.com/mailboxmq/mailbox/gen/mailbox/v1"
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

func TestMessagePassesThroughEveryProtocol(t *testing.T) {
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
		if want := envelope.HashBody(payload).String(); e.GetPayloadHash() != want {
			t.Errorf("payload_hash is %q, want %q", e.GetPayloadHash(), want)
		}
		acked, err := rpc.Ack(t.Context(), &mailboxv1.AckRequest{Topic: "orders", Deliveries: []*mailboxv1.DeliveryRef{{Receipt: m.GetReceipt()}}})
		if err != nil || acked.GetResults()[0].GetError() != nil {
			t.Errorf("ack: %v, %v", acked, err)
		}
	})
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

func TestLongPollOutlastsReadTimeout(t *testing.T) {
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

func TestAckByMessageIDIsRepeatable(t *testing.T) {
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

func TestNackWithoutDelayBacksOff(t *testing.T) {
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

// TestLargeAnswerIsCutWithoutLoss has attributes that make an answer larger
// than clients accept.
func TestLargeAnswerIsCutWithoutLoss(t *testing.T) {
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
				if attempt := m.GetEnvelope().GetAttempt(); attempt != 1 {
					t.Errorf("a message that was released is delivered for the %d. time", attempt)
				}
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

func TestSendWithoutKeyNeedsKeyless(t *testing.T) {
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
		if n := d.figure(t, "mailbox_keyless_total", "orders"); n != 1 {
			t.Errorf("%v messages are counted as sent without a key, want 1", n)
		}
	})
}

func TestLifeReturnsTraceOfMessage(t *testing.T) {
	withDaemon(t, func(t *testing.T, d *daemon) {
		rpc := d.rpc(d.mint(t, ""), connect.WithGRPC())
		send(t, rpc, 1)
		got, err := rpc.Recv(t.Context(), &mailboxv1.RecvRequest{Topic: "orders"})
		if err != nil {
			t.Fatal(err)
		}
		id := got.GetMessages()[0].GetEnvelope().GetMsgId()
		trace, err := rpc.Life(t.Context(), &mailboxv1.LifeRequest{Topic: "orders", MsgId: id})
		if err != nil {
			t.Fatal(err)
		}
		var kinds []string
		for _, e := range trace.GetEvents() {
			kinds = append(kinds, e.GetKind())
		}
		if fmt.Sprint(kinds) != "[sent delivered]" || trace.GetMessage().GetState() != mailboxv1.MessageState_MESSAGE_STATE_IN_FLIGHT {
			t.Errorf("got %v, %v", kinds, trace.GetMessage())
		}
	})
}

// decode reads base64 without padding, as Connect writes it.
func decode(text string) string {
	raw, _ := base64.RawStdEncoding.DecodeString(text)
	return string(raw)
}

// TestPeekSearchesWithCursor: CNT-2 over gRPC: the last response says how far a search looked and where to go on.
func TestPeekSearchesWithCursor(t *testing.T) {
	withDaemon(t, func(t *testing.T, d *daemon) {
		rpc := d.rpc(d.mint(t, ""), connect.WithGRPC())
		send(t, rpc, 5)
		cursor, found, looked := "", 0, int64(0)
		for steps := 0; steps == 0 || cursor != ""; steps++ {
			stream, err := rpc.Peek(t.Context(), &mailboxv1.PeekRequest{Topic: "orders", Limit: 2, Priority: proto.Int32(0), Cursor: &cursor, WithinMs: 30_000})
			if err != nil {
				t.Fatal(err)
			}
			var extent *mailboxv1.PeekExtent
			for stream.Receive() {
				found += len(stream.Msg().GetMessages())
				extent = stream.Msg().GetExtent()
			}
			if stream.Err() != nil || extent == nil || steps > 5 {
				t.Fatalf("step %d: extent %v, %v", steps, extent, stream.Err())
			}
			looked += extent.GetReady()
			cursor = extent.GetCursor()
		}
		if found != 5 || looked != 5 {
			t.Errorf("found %d, looked at %d; want 5 and 5", found, looked)
		}
		for _, r := range []*mailboxv1.PeekRequest{{Topic: "orders", Cursor: proto.String("nonsense")}, {Topic: "orders", WithinMs: 5}} {
			stream, err := rpc.Peek(t.Context(), r)
			if err == nil {
				stream.Receive()
				err = stream.Err()
			}
			if connect.CodeOf(err) != connect.CodeInvalidArgument {
				t.Errorf("%v: got %v", r, err)
			}
		}
	})
}
