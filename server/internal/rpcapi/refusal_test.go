package rpcapi_test

import (
	"bytes"
	"context"
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
	mailboxv1 "github.com/mailboxmq/mailbox/gen/mailbox/v1"
	"github.com/mailboxmq/mailbox/gen/mailbox/v1/mailboxv1connect"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/server/internal/broker"
	"github.com/mailboxmq/mailbox/server/internal/rpcapi"
)

// TestErrorsHaveTheirDetails holds the promise of the proto file: a status, one
// ErrorDetail, and where it helps a time to come back.
func TestErrorsHaveTheirDetails(t *testing.T) {
	eachProtocol(t, func(t *testing.T, d *daemon, protocol connect.ClientOption) {
		corr := http.Header{"X-Corr-Id": {"trace-7"}}
		client := func(token capability.Token) mailboxv1connect.MailboxClient {
			return mailboxv1connect.NewMailboxClient(d.client, "http://daemon", protocol, connect.WithInterceptors(shows{token, corr}))
		}
		all := client(d.mint(t, ""))
		if _, err := all.Send(t.Context(), &mailboxv1.SendRequest{Topic: "orders", Keyless: true}); err != nil {
			t.Fatal(err)
		}
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
			{"an edit that is not for the token", "E_CAP_SCOPE", connect.CodePermissionDenied, func(ctx context.Context) error {
				_, err := client(d.mint(t, "", capability.Operations(capability.OpStats))).Edit(ctx, &mailboxv1.EditRequest{Topic: "orders", MsgId: "m", Remove: true})
				return err
			}},
			{"an edit of nothing", "E_NOT_FOUND", connect.CodeNotFound, func(ctx context.Context) error {
				_, err := all.Edit(ctx, &mailboxv1.EditRequest{Topic: "orders", MsgId: "m", Remove: true})
				return err
			}},
			{"an edit without a change", "E_SCHEMA", connect.CodeInvalidArgument, func(ctx context.Context) error {
				_, err := all.Edit(ctx, &mailboxv1.EditRequest{Topic: "orders", MsgId: "m"})
				return err
			}},
			{"no such queue", "E_NOT_FOUND", connect.CodeNotFound, func(ctx context.Context) error {
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
				_, err := all.Send(ctx, &mailboxv1.SendRequest{Topic: "orders", Messages: []*mailboxv1.Outgoing{{Payload: make([]byte, rpcapi.MaxRequestBytes)}}})
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
			lacks := "purge"
			if strings.HasPrefix(test.name, "an edit") {
				lacks = "admin"
			}
			if says := `token does not allow "` + lacks + `" on queue "orders"; it allows stats on all queues`; test.code == "E_CAP_SCOPE" && !strings.Contains(err.Error(), says) {
				t.Errorf("got %v, want %s", err, says)
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

func TestInvalidRequestIsRefused(t *testing.T) {
	unknown := protowire.AppendVarint(protowire.AppendTag(nil, 99, protowire.VarintType), 1)
	inside := protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), unknown)
	for name, test := range map[string]struct{ contentType, body string }{
		"unknown field":              {"application/json", `{"topic":"unmade","color":"red"}`},
		"unknown field inside":       {"application/json", `{"topic":"unmade","messages":[{"color":"red"}]}`},
		"field twice":                {"application/json", `{"topic":"unmade","topic":"unmade"}`},
		"key twice":                  {"application/json", `{"topic":"unmade","messages":[{"attrs":{"a":"1","a":"2"}}]}`},
		"wrong type":                 {"application/json", `{"topic":7}`},
		"trailing data":              {"application/json", `{"topic":"unmade"} {}`},
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
				if _, err := d.backend.(driver.Admin).QueueConfig(t.Context(), "unmade"); !errors.Is(err, driver.ErrNotFound) {
					t.Errorf("the call created the queue all the same: %v", err)
				}
			})
		})
	}
}

func TestUnknownFieldInJSONIsSuggested(t *testing.T) {
	withDaemon(t, func(t *testing.T, d *daemon) {
		for body, want := range map[string]string{
			`{"topik":"jobs"}`: `unknown field \"topik\"; did you mean \"topic\"?`,
			`{"topic":"jobs","messages":[{"payloat":"eA=="}]}`: `unknown field \"payloat\"; did you mean \"payload\"?`,
			`{"zzzzzzzzzz":1}`: `unknown field \"zzzzzzzzzz\"`,
		} {
			_, answer, _ := d.post(t, d.client, "Send", "application/json", strings.NewReader(body))
			if !strings.Contains(string(answer), want) || strings.Contains(string(answer), "did you mean") != strings.Contains(want, "did you mean") {
				t.Errorf("%s: got %s, want %s", body, answer, want)
			}
		}
	})
}

func TestUnknownMethodIsSuggested(t *testing.T) {
	withDaemon(t, func(t *testing.T, d *daemon) {
		status, answer, _ := d.post(t, d.client, "Sned", "application/json", strings.NewReader("{}"))
		if status != http.StatusNotImplemented || !strings.Contains(string(answer), `no method \"Sned\"; did you mean Send?`) {
			t.Errorf("got %d: %s", status, answer)
		}
	})
}

func TestUnsupportedContentTypeIsNamed(t *testing.T) {
	withDaemon(t, func(t *testing.T, d *daemon) {
		status, answer, _ := d.post(t, d.client, "Send", "text/html", strings.NewReader("{}"))
		if status != http.StatusUnsupportedMediaType || !strings.Contains(string(answer), `"text/html" is not supported; use application/json`) {
			t.Errorf("got %d: %s", status, answer)
		}
	})
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

func TestOversizedFrameIsRefusedBeforeReading(t *testing.T) {
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

func TestUnfinishedRequestTimesOut(t *testing.T) {
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

// brokenBackend is one that does not answer, for a reason that is not a client's
// business.
type brokenBackend struct{ *membox.Backend }

func (brokenBackend) Ping(context.Context) error { return errors.New("dial 10.0.0.7: secret") }

func TestErrorsHideTheBackend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon(t, brokenBackend{membox.New(nil)}, broker.Limits{})
		_, err := d.rpc(d.mint(t, ""), connect.WithGRPC()).Ping(t.Context(), &mailboxv1.PingRequest{})
		if detailOf(err).GetCode() != "E_UNAVAILABLE" || strings.Contains(fmt.Sprint(err, detailOf(err)), "secret") {
			t.Errorf("got %v", err)
		}
		d.stop()
	})
}

func TestCompressedCallsAreReadWithinTheLimit(t *testing.T) {
	eachProtocol(t, func(t *testing.T, d *daemon, protocol connect.ClientOption) {
		client := d.rpc(d.mint(t, ""), protocol, connect.WithSendGzip())
		send := func(size int) error {
			_, err := client.Send(t.Context(), &mailboxv1.SendRequest{Topic: "orders", Keyless: true, Messages: []*mailboxv1.Outgoing{{Payload: make([]byte, size)}}})
			return err
		}
		if err := send(300 << 10); err != nil {
			t.Errorf("a compressed message: %v", err)
		}
		if err := send(3 * rpcapi.MaxRequestBytes); connect.CodeOf(err) != connect.CodeResourceExhausted {
			t.Errorf("3 MiB in a small frame: %v", err)
		}
	})
}

// TestTraitsFollowFromLargestRequest: what the traits allow fits in a request, whatever the
// daemon allows.
func TestTraitsFollowFromLargestRequest(t *testing.T) { // SVC-5
	for name, test := range map[string]struct {
		largest int
		options []connect.ClientOption
	}{
		"gRPC":            {1_047_552, []connect.ClientOption{connect.WithGRPC()}},
		"Connect":         {1_047_552, nil},
		"Connect in JSON": {785_664, []connect.ClientOption{connect.WithProtoJSON()}},
	} {
		for _, limit := range []int{0, 1 << 20} {
			t.Run(fmt.Sprint(name, limit), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					d := newDaemon(t, membox.New(nil), broker.Limits{MaxPayloadBytes: limit})
					defer d.stop()
					client := d.rpc(d.mint(t, ""), test.options...)
					queue, key := strings.Repeat("q", driver.MaxNameBytes), strings.Repeat("k", driver.MaxDedupKeyBytes)
					promised, err := client.Traits(t.Context(), &mailboxv1.TraitsRequest{Topic: queue})
					want := test.largest
					if limit == 0 {
						want = 704 << 10
					}
					if err != nil || promised.GetMaxPayloadBytes() != int64(want) {
						t.Fatalf("max_payload_bytes is %d, want %d; %v", promised.GetMaxPayloadBytes(), want, err)
					}
					send := func(size int) error {
						_, err := client.Send(t.Context(), &mailboxv1.SendRequest{Topic: queue, Messages: []*mailboxv1.Outgoing{{IdemKey: key, Payload: make([]byte, size)}}})
						return err
					}
					if err := send(want); err != nil {
						t.Error(err)
					}
					err = send(want + 1<<10)
					if limit > 0 && (detailOf(err).GetCode() != "E_FRAME_TOO_LARGE" || !strings.Contains(err.Error(), "a request has at most 1048576 bytes")) {
						t.Errorf("got %v", err)
					}
				})
			})
		}
	}
}
