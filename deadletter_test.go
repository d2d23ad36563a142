package mailbox_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/driver"
)

// deadLetter sends bodies, dead-letters them, and returns their ids.
func deadLetter(t *testing.T, m *mailbox.Mailbox[string], bodies ...string) []string {
	t.Helper()
	mustSend(t, m, bodies...)
	var ids []string
	for _, message := range mustReceive(t, m, len(bodies)) {
		wantError(t, message.DeadLetter(t.Context(), mailbox.ReasonFatal, errors.New("no milk")), nil)
		ids = append(ids, message.ID)
	}
	return ids
}

func TestRedriveMovesOnlyNamedDeadLetters(t *testing.T) {
	m, _ := onMemory(t, nil)
	ids := deadLetter(t, m, "a", "b", "c")
	moved, err := m.Redrive(t.Context(), []string{ids[1], "unknown"})
	wantError(t, err, nil)
	wantEqual(t, "moved", moved, 1)
	message := mustReceive(t, m, 1)[0]
	wantEqual(t, "body", message.Body, "b")
	wantEqual(t, "deliveries", message.Deliveries, 1)
	wantEqual(t, "id", message.ID, ids[1])
}

func TestRedriveAndDiscardWithoutIDsChangeNothing(t *testing.T) {
	m, _ := onMemory(t, nil)
	deadLetter(t, m, "a", "b")
	for _, ids := range [][]string{nil, {}} {
		moved, err := m.Redrive(t.Context(), ids)
		wantError(t, err, nil)
		removed, err := m.Discard(t.Context(), ids)
		wantError(t, err, nil)
		wantEqual(t, "moved and removed", moved+removed, 0)
	}
	wantStats(t, m, mailbox.Stats{Dead: 2})
}

func TestRedriveAllMovesOldestFirst(t *testing.T) {
	m, _ := onMemory(t, nil)
	deadLetter(t, m, "a", "b", "c")
	moved, err := m.RedriveAll(t.Context(), 2)
	wantError(t, err, nil)
	wantEqual(t, "moved", moved, 2)
	wantSame(t, "bodies", bodies(mustReceive(t, m, 2)), []string{"a", "b"})
	moved, err = m.RedriveAll(t.Context(), 0)
	wantError(t, err, nil)
	wantEqual(t, "moved", moved, 1)
	_, err = m.RedriveAll(t.Context(), -1)
	wantField(t, err, mailbox.ErrInvalid, "limit")
}

func TestDiscardAndPurgeDeadRemoveDeadLetters(t *testing.T) {
	m, _ := onMemory(t, nil)
	ids := deadLetter(t, m, "a", "b", "c")
	removed, err := m.Discard(t.Context(), ids[:1])
	wantError(t, err, nil)
	wantEqual(t, "removed", removed, 1)
	removed, err = m.PurgeDead(t.Context())
	wantError(t, err, nil)
	wantEqual(t, "removed", removed, 2)
	wantStats(t, m, mailbox.Stats{})
}

func TestDeadLettersAreDecodedIfPossible(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		numbers, text := numbersAndText(t, driver.Config{}, nil)
		mustSend(t, text, "poison", "2")
		wantError(t, mustReceive(t, numbers, 1)[0].DeadLetter(t.Context(), mailbox.ReasonOperator, nil), nil)
		var reasons []mailbox.Reason
		for letter, err := range numbers.DeadLetters(t.Context()) {
			wantError(t, err, nil)
			reasons = append(reasons, letter.Reason)
			wantEqual(t, "source", letter.Source, "orders")
			if letter.Reason == mailbox.ReasonParse {
				wantError(t, letter.DecodeErr, mailbox.ErrEncoding)
				wantEqual(t, "encoded body", string(letter.DeadLetter.Body), "poison")
				wantEqual(t, "body", letter.Body, 0)
				continue
			}
			wantError(t, letter.DecodeErr, nil)
			wantEqual(t, "body", letter.Body, 2)
		}
		wantSame(t, "reasons", reasons, []mailbox.Reason{mailbox.ReasonParse, mailbox.ReasonOperator})
		for range numbers.DeadLetters(t.Context()) {
			break
		}
	})
}

func TestPeekDoesNotReceiveMessages(t *testing.T) {
	m, _ := onMemory(t, nil)
	deadLetter(t, m, "dead")
	mustSend(t, m, "in flight")
	mustReceive(t, m, 1)
	if _, err := m.Send(t.Context(), "delayed", mailbox.WithDelay(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Send(t.Context(), "ready", mailbox.WithAttribute("k", "v")); err != nil {
		t.Fatal(err)
	}
	before, err := m.Stats(t.Context())
	wantError(t, err, nil)
	for range 2 {
		for peeked, err := range m.Peek(t.Context(), mailbox.Query{}) {
			wantError(t, err, nil)
			wantError(t, peeked.DecodeErr, nil)
			wantEqual(t, "state", string(peeked.State), peeked.Body)
			if peeked.State == mailbox.StateReady {
				wantEqual(t, "attribute", peeked.Attributes["k"], "v")
				peeked.Attributes["k"] = "changed" // is the peeker's own
			}
		}
	}
	wantStats(t, m, before)
	for range m.Peek(t.Context(), mailbox.Query{}) {
		break
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, err := range m.Peek(ctx, mailbox.Query{}) {
		wantEqual(t, "error", err, context.Canceled)
	}
	for _, err := range m.DeadLetters(ctx) {
		wantEqual(t, "error", err, context.Canceled)
	}
}

func TestMissingAbilityIsErrUnsupported(t *testing.T) {
	m := mailbox.New[string]("orders", newFake(), nil)
	for name, err := range abilities(t.Context(), m) {
		t.Run(name, func(t *testing.T) { wantError(t, err, mailbox.ErrUnsupported) })
	}
}

// abilities calls the methods that not every backend can serve.
func abilities(ctx context.Context, m *mailbox.Mailbox[string]) map[string]error {
	errs := make(map[string]error)
	_, errs["Redrive"] = m.Redrive(ctx, []string{"id"})
	_, errs["RedriveAll"] = m.RedriveAll(ctx, 0)
	_, errs["Discard"] = m.Discard(ctx, []string{"id"})
	_, errs["PurgeDead"] = m.PurgeDead(ctx)
	for _, errs["Peek"] = range m.Peek(ctx, mailbox.Query{}) {
		break
	}
	for _, errs["DeadLetters"] = range m.DeadLetters(ctx) {
		break
	}
	return errs
}
