package oap_test

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/oap"
	"github.com/mailboxmq/mailbox/internal/testing/golden"
)

func TestPayloadsSurviveTheWire(t *testing.T) {
	for _, s := range samples() {
		again, err := s.again(slices.Clone(s.payload))
		if err != nil {
			t.Errorf("%s: %v", s.name, err)
		} else if !bytes.Equal(again, s.payload) {
			t.Errorf("%s: read and written again it is\n%x, not\n%x", s.name, again, s.payload)
		}
	}
}

// TestPayloadsKeepEveryField reads some payloads back into what they were made
// of, so that a field that is neither written nor read is noticed.
func TestPayloadsKeepEveryField(t *testing.T) {
	check := func(what string, got, want any, err error) {
		t.Helper()
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\ngot  %+v, %v\nwant %+v", what, got, err, want)
		}
	}
	target, out, err := oap.ParseSend(appendSend(aTarget, someOut), nil)
	check("send", out, someOut, err)
	check("send", target, aTarget, err)
	delivery := driver.Delivery{Message: aMessage, Receipt: aReceipt}
	deliveries, err := oap.ParseDeliveries(oap.AppendDelivery(nil, &delivery), nil)
	check("delivery", deliveries, []driver.Delivery{delivery}, err)
	peeked := driver.Peeked{DeadLetter: aLetter, State: driver.StateDead, DueAt: aTime}
	seen, err := oap.ParsePeeked(oap.AppendPeeked(nil, &peeked))
	check("peeked", seen, []driver.Peeked{peeked}, err)
	config, err := oap.ParseConfig(oap.AppendConfig(nil, &aConfig))
	check("config", config, aConfig, err)
	config, err = oap.ParseConfig(oap.AppendConfig(nil, &aFairConfig))
	check("fair config", config, aFairConfig, err)
	workers, err := oap.ParseWorkers(oap.AppendWorker(nil, &aWorker, oap.KnownTraits), oap.KnownTraits)
	check("worker", workers, []oap.Worker{aWorker}, err)
	unreported := aWorker
	unreported.Held = []oap.HeldMessage{{ID: aMessage.ID, Attempt: 1, TakenAt: aTime, Until: aTime.Add(time.Minute)}, unreported.Held[1]}
	workers, err = oap.ParseWorkers(oap.AppendWorker(nil, &aWorker, oap.PlainTraits), oap.PlainTraits)
	check("worker for earlier clients", workers, []oap.Worker{unreported}, err)
	reports := []driver.Extension{
		{Receipt: aReceipt, Visibility: time.Hour}, {Receipt: aReceipt, Progress: &driver.Progress{Fraction: 0.4, Text: "page 4 of 10"}},
		{Receipt: aReceipt, Progress: &driver.Progress{Fraction: -1}}, {Receipt: aReceipt, Progress: &driver.Progress{Fraction: 0}}, {Receipt: aReceipt, Progress: &driver.Progress{Fraction: 1}},
	}
	_, extensions, err := oap.ParseExtendProgress(oap.AppendExtendProgress(nil, aTarget, reports), nil)
	check("extensions", extensions, reports, err)
	e, err := oap.ParseError(oap.AppendError(nil, &anError))
	check("error", *e, anError, err)
}

func TestCutAndLengthenedPayloadsAreRefused(t *testing.T) {
	for _, s := range samples() {
		streams := slices.Contains([]string{"deliveries", "delivery with a priority", "delivery whose slot waits", "deadletters", "peeked", "queues", "schedules", "workers", "workers with progress", "config with ageing", "config with limits by group", "stats throttled answer"}, s.name)
		for end := range s.payload {
			again, err := s.again(slices.Clone(s.payload[:end]))
			if err == nil && !(streams && bytes.Equal(again, s.payload[:end])) {
				t.Errorf("%s: %d of %d bytes are accepted", s.name, end, len(s.payload))
			}
		}
		for _, more := range []byte{0, 1, 0x80, 0xff} {
			longer := append(slices.Clone(s.payload), more)
			if again, err := s.again(longer); err == nil && !bytes.Equal(again, longer) {
				t.Errorf("%s: one more byte, %#x, is passed over", s.name, more)
			}
		}
	}
}

// TestEveryValueHasOneEncoding changes every bit of every payload: what is
// still accepted must mean something else.
func TestEveryValueHasOneEncoding(t *testing.T) {
	for _, s := range samples() {
		for i := range s.payload {
			for bit := range 8 {
				changed := slices.Clone(s.payload)
				changed[i] ^= 1 << bit
				if again, err := s.again(slices.Clone(changed)); err == nil && !bytes.Equal(again, changed) {
					t.Errorf("%s: with bit %d of byte %d changed it is\n%x, but is written\n%x", s.name, bit, i, changed, again)
				}
			}
		}
	}
}

func TestGoldenVectors(t *testing.T) {
	var text bytes.Buffer
	for _, s := range samples() {
		fmt.Fprintf(&text, "%s\t%s\n", s.name, hex.EncodeToString(s.payload))
	}
	frame := oap.AppendFrame(nil, &oap.Header{
		Flags: oap.Request | oap.Start, Code: oap.OpStart, Protocol: oap.ProtocolMailbox,
		Tenant: [16]byte{0xaa, 15: 0xbb}, Correlation: 0x0102030405060708,
	}, []byte("capability"), []byte("payload"))
	fmt.Fprintf(&text, "%s\t%s\n", "frame", hex.EncodeToString(frame))
	golden.Match(t, "testdata/vectors.tsv", text.Bytes())
}

func TestEncodingDoesNotAllocate(t *testing.T) {
	buffer := make([]byte, 0, 4096)
	messages := make([]driver.Outgoing, 0, 4)
	plain := []driver.Outgoing{{Body: make([]byte, 256)}}
	request := driver.ReceiveRequest{Max: 1, Visibility: time.Minute}
	payload := appendSend(aTarget, plain)
	for name, do := range map[string]func(){
		"write a send": func() {
			buffer = oap.AppendOutgoing(oap.AppendSend(buffer[:0], aTarget, 1), &plain[0])
		},
		"read a send": func() {
			if _, got, err := oap.ParseSend(payload, messages[:0]); err != nil || len(got) != 1 {
				t.Error(got, err)
			}
		},
		"write a receive": func() { buffer = oap.AppendReceive(buffer[:0], 7, request) },
		"write and read a frame": func() {
			buffer = oap.AppendFrame(buffer[:0], &oap.Header{Flags: oap.Request, Protocol: oap.ProtocolMailbox}, nil, payload)
			if _, _, need, err := oap.Next(buffer); need != 0 || err != nil {
				t.Error(need, err)
			}
		},
	} {
		if n := testing.AllocsPerRun(100, do); n != 0 {
			t.Errorf("to %s takes %v allocations", name, n)
		}
	}
}

func FuzzPayloads(f *testing.F) {
	all := samples()
	for i, s := range all {
		f.Add(byte(i), s.payload)
	}
	f.Fuzz(func(t *testing.T, kind byte, payload []byte) {
		s := all[int(kind)%len(all)]
		again, err := s.again(slices.Clone(payload))
		if err == nil && !bytes.Equal(again, payload) {
			t.Errorf("%s: %x is written %x", s.name, payload, again)
		}
	})
}
