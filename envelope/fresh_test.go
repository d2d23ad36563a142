package envelope

import (
	"errors"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// TestSignatureCoversWhatConsumersActOn changes each field that a consumer acts on. With
// version 1 those outside the hash chain can be changed, which is why version 2
// exists.
func TestSignatureCoversWhatConsumersActOn(t *testing.T) {
	changes := map[string]struct {
		change  func(*Envelope)
		chained bool
	}{
		"reply address":            {func(e *Envelope) { e.ReplyTo = "evil" }, false},
		"no reply address":         {func(e *Envelope) { e.ReplyTo = "" }, false},
		"group":                    {func(e *Envelope) { e.Group = "evil" }, false},
		"correlation id":           {func(e *Envelope) { e.CorrelationID = "evil" }, false},
		"reply address into group": {func(e *Envelope) { e.ReplyTo, e.Group = "answersg", "" }, false},
		"queue":                    {func(e *Envelope) { e.Queue = "evil" }, true},
		"time":                     {func(e *Envelope) { e.SentAt = e.SentAt.Add(time.Hour) }, true},
		"dedup key":                {func(e *Envelope) { e.DedupKey = "evil" }, true},
		"attribute":                {func(e *Envelope) { e.Attributes = map[string]string{"evil": "1"} }, true},
	}
	for version, sign := range map[int]func(*Envelope) error{
		signatureV1: func(e *Envelope) error { signV1(e, key('a')); return nil },
		SignatureV2: func(e *Envelope) error { return e.Sign(key('a')) },
	} {
		e := Envelope{ID: "x", Queue: "orders", SentAt: sentAt, DedupKey: "k", ReplyTo: "answers", Group: "g", CorrelationID: "c", Attributes: map[string]string{"content-type": "text/plain"}}
		if err := e.Seal(payload); err != nil {
			t.Fatal(err)
		}
		if err := sign(&e); err != nil {
			t.Fatal(err)
		}
		if got, err := e.VerifySigned(payload, public(key('b')), public(key('a'))); err != nil || got != version {
			t.Errorf("version %d is taken for %d, %v", version, got, err)
		}
		for name, test := range changes {
			changed := e
			test.change(&changed)
			changed.Signature = Signature{}
			signature := e.Signature
			if err := changed.Seal(payload); err != nil { // an attacker can hash it again
				t.Fatal(err)
			}
			changed.Signature = signature
			_, err := changed.VerifySigned(payload, public(key('a')))
			if open := version == signatureV1 && !test.chained; (err == nil) != open || err != nil && !errors.Is(err, driver.ErrIntegrity) {
				t.Errorf("version %d with another %s: %v", version, name, err)
			}
		}
	}
	if _, err := new(Envelope).VerifySigned(nil); !errors.Is(err, driver.ErrIntegrity) {
		t.Errorf("verified without keys: %v", err)
	}
}

func TestFreshnessBoundsReplays(t *testing.T) {
	at := sentAt
	for name, test := range map[string]struct {
		expires       string
		enqueued, now time.Duration // after it was signed
		maxAge        time.Duration
		fresh         bool
	}{
		"sent at once":                    {"", 0, 0, time.Minute, true},
		"waited for a week":               {"", time.Second, 7 * 24 * time.Hour, time.Minute, true},
		"sent again in time":              {"", time.Minute, time.Minute, time.Minute, true},
		"sent again later":                {"", time.Minute + 1, time.Minute + 1, time.Minute, false},
		"sent again later, no bound":      {"", time.Hour, time.Hour, 0, true},
		"clock of the sender ahead":       {"", -clockTolerance, 0, time.Minute, true},
		"clock of the sender far ahead":   {"", -clockTolerance - 1, 0, time.Minute, false},
		"before its expiry":               {at.Add(time.Hour).Format(timeLayout), 0, time.Hour - 1, time.Minute, true},
		"at its expiry":                   {at.Add(time.Hour).Format(timeLayout), 0, time.Hour, time.Minute, false},
		"at its expiry, no bound for age": {at.Add(time.Hour).Format(timeLayout), 0, time.Hour, 0, false},
		"an invalid expiry":               {"tomorrow", 0, 0, time.Minute, false},
	} {
		e := Envelope{Queue: "t", SentAt: at}
		if test.expires != "" {
			e.Attributes = map[string]string{AttributeExpires: test.expires}
		}
		err := e.CheckFresh(at.Add(test.enqueued), at.Add(test.now), test.maxAge)
		if (err == nil) != test.fresh || err != nil && !errors.Is(err, driver.ErrIntegrity) {
			t.Errorf("%s: %v", name, err)
		}
	}
	e := Envelope{Attributes: map[string]string{AttributeExpires: at.UTC().Format(timeLayout)}}
	if e.CheckFresh(at, at.Add(-time.Millisecond), 0) != nil || e.CheckFresh(at, at, 0) == nil {
		t.Errorf("%v is not the instant at which a message expires", e.Attributes)
	}
}

func FuzzSignedFields(f *testing.F) {
	f.Add("answers", "g", "c", "answersg", "", "c")
	f.Fuzz(func(t *testing.T, reply, group, corr, reply2, group2, corr2 string) {
		one := Envelope{ReplyTo: reply, Group: group, CorrelationID: corr}
		two := Envelope{ReplyTo: reply2, Group: group2, CorrelationID: corr2}
		same := reply == reply2 && group == group2 && corr == corr2
		if (string(one.signed2(new(Hash))) == string(two.signed2(new(Hash)))) != same {
			t.Errorf("%+v and %+v are signed alike", one, two)
		}
	})
}
