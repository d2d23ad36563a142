package rpcapi_test

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/mailboxmq/mailbox/capability"
	mailboxv1 "github.com/mailboxmq/mailbox/gen/mailbox/v1"
	"github.com/mailboxmq/mailbox/internal/keyring"
	"github.com/mailboxmq/mailbox/internal/verify"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/reply"
	"github.com/mailboxmq/mailbox/server/internal/broker"
	"github.com/mailboxmq/mailbox/server/internal/rpcapi"
)

// FuzzUnary throws bytes at the decoders of all calls that answer once, through
// everything that stands before them.
func FuzzUnary(f *testing.F) {
	request := &mailboxv1.SendRequest{Topic: "orders", Messages: []*mailboxv1.Outgoing{{
		Payload: []byte("x"), Attrs: map[string]string{"a": "b"}, SentAtMs: 1, Sig: make([]byte, 64), DelayMs: 0.5,
	}}}
	binary, err := proto.Marshal(request)
	if err != nil {
		f.Fatal(err)
	}
	framed := append([]byte{0, 0, 0, 0, byte(len(binary))}, binary...)
	f.Add(uint8(0), uint8(0), binary)
	f.Add(uint8(0), uint8(1), []byte(`{"topic":"orders","messages":[{"payload":"eA==","attrs":{"a":"b"}}]}`))
	f.Add(uint8(0), uint8(2), framed)
	f.Add(uint8(0), uint8(3), framed)
	f.Add(uint8(1), uint8(1), []byte(`{"topic":"orders","visibility_ms":"NaN","max_messages":-1,"max_bytes":"9223372036854775807"}`))
	f.Add(uint8(2), uint8(2), []byte{0, 0xff, 0xff, 0xff, 0xff})
	f.Add(uint8(3), uint8(2), []byte{1, 0, 0, 0, 1, 0})
	f.Add(uint8(9), uint8(1), []byte(`{"topic":"orders","config":{"retain_ready":{"age_ms":1e300},"shards":2147483647}}`))
	f.Add(uint8(24), uint8(1), []byte(`{"topic":"orders","schedule":{"name":"often","everyMs":"NaN","attrs":{"a":"b"}}}`))
	f.Add(uint8(24), uint8(1), []byte(`{"topic":"orders","schedule":{"name":"often","cron":"@daily","zone":"Local","createdAt":"2000-01-01T00:00:00Z"}}`))

	f.Add(uint8(31), uint8(1), []byte(`{"slot":"s","ttlMs":"Infinity"}`))

	calls := []string{
		"Send", "Recv", "Ack", "Nack", "Extend", "Bury", "Life", "Stats", "Redrive", "Configure", "Describe",
		"Discard", "Pause", "Resume", "Edit", "Purge", "PurgeDead", "Traits", "Delete", "Ping", "Peek", "DeadLetters", "Topics", "RecvStream",
		"PutSchedule", "GetSchedule", "Schedules", "PauseSchedule", "ResumeSchedule", "RunSchedule", "DeleteSchedule",
		"CreateSlot", "ResolveSlot", "WaitSlot", "CancelSlot", "ConsumeSlot", "DeleteSlot", "ExpiredSlots", "SweepSlots", "Throttle",
	}
	kinds := []string{"application/proto", "application/json", "application/grpc", "application/grpc-web", "application/connect+proto", "application/connect+json"}
	ring := keyring.New(keyring.NewKey())
	b, err := broker.New(broker.Options{
		Opener: membox.New(nil), Replies: reply.NewMemory(nil), Ring: ring, Verifier: verify.New(ring, nil),
		Limits: broker.Limits{MaxWait: time.Millisecond},
	})
	if err != nil {
		f.Fatal(err)
	}
	handler := rpcapi.New(rpcapi.Options{Broker: b})
	token, err := ring.Mint("", capability.EveryOperation(), capability.Queues(capability.AnyQueue()), capability.ExpiresAt(time.Now().Add(time.Hour)))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, call, kind uint8, body []byte) {
		name := calls[int(call)%len(calls)]
		if name == "Configure" && bytes.Contains(body, []byte("shards")) {
			return // a thousand shards for each input would be no test of decoders
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond) // streams would wait for messages
		defer cancel()
		r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/mailbox.v1.Mailbox/"+name, bytes.NewReader(body))
		r.ProtoMajor, r.ProtoMinor = 2, 0
		r.Header.Set("Content-Type", kinds[int(kind)%len(kinds)])
		r.Header.Set("Authorization", "Bearer "+token.Reveal())
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if w.Code == http.StatusInternalServerError && ctx.Err() == nil && !bytes.Contains(w.Body.Bytes(), []byte("canceled")) {
			t.Errorf("%s with %q: %d %s", name, body, w.Code, w.Body)
		}
	})
}
