package broker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/keyring"
	"github.com/mailboxmq/mailbox/internal/revocation"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

// The tests in this file are about hostile and unlucky callers.

func TestNackWithLongBinaryCauseDoesNotPanic(t *testing.T) {
	b := memory(t, broker.Limits{})
	c := b.as("")
	b.send(c, "orders", "x")
	got := b.receive(c, "orders", 1)
	nack := broker.Nack{Receipt: got[0].Receipt, Cause: strings.Repeat("\xff", driver.MaxCauseBytes+1)}
	if err := c.Nack(t.Context(), "orders", []broker.Nack{nack}); err != nil {
		t.Error(err)
	}
}

func TestMintedTokenIsNotWiderThanMinter(t *testing.T) {
	b := memory(t, broker.Limits{})
	narrow := mint(t, b.ring, "", capability.Operations(capability.OpAdmin), capability.Networks(netip.MustParsePrefix("10.0.0.0/8")))
	inside := b.Caller(narrow, broker.Origin{Client: netip.MustParseAddr("10.1.2.3")})
	if _, err := inside.Send(t.Context(), "orders", say("x")); !errors.Is(err, driver.ErrForbidden) {
		t.Fatalf("setup: the narrow token can send: %v", err)
	}
	made, err := inside.Mint(t.Context(), "", []capability.Caveat{capability.AllOperations(), capability.Queues(capability.AnyQueue())})
	if err != nil {
		t.Fatal(err)
	}
	outside := b.Caller(made, broker.Origin{Client: netip.MustParseAddr("192.0.2.1")})
	if _, err := outside.Send(t.Context(), "orders", say("x")); err == nil {
		t.Error("a token for op=admin net=10/8 made itself one that sends, from anywhere")
	}
}

func TestFullAttributesWithDeadSourceAreDelivered(t *testing.T) {
	b := memory(t, broker.Limits{})
	c := b.as("")
	attributes := map[string]string{driver.AttributeDeadSource: "elsewhere"}
	for i := len(attributes); i < broker.MaxAttributes; i++ {
		attributes[fmt.Sprintf("k%d", i)] = "v"
	}
	if _, err := c.Send(t.Context(), "orders", []broker.Outgoing{{Outgoing: driver.Outgoing{Body: []byte("x"), Attributes: attributes}}}); err != nil {
		t.Fatal(err)
	}
	got, err := c.Receive(t.Context(), "orders", driver.ReceiveRequest{Max: 1, Visibility: time.Minute})
	if len(got) != 1 {
		t.Errorf("accepted, and then: %v", err)
	}
}

// slowOpener's queues pause after leasing messages, before the receive returns.
type slowOpener struct {
	*membox.Backend
	leased, goOn chan struct{}
}

type slowQueue struct {
	driver.Queue
	o *slowOpener
}

func (o *slowOpener) OpenQueue(ctx context.Context, name string) (driver.Queue, error) {
	q, err := o.Backend.OpenQueue(ctx, name)
	return &slowQueue{q, o}, err
}

func (q *slowQueue) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	got, err := q.Queue.Receive(ctx, req)
	q.o.leased <- struct{}{}
	<-q.o.goOn
	return got, err
}

func TestDeletingQueueDuringReceiveLeavesNoLease(t *testing.T) {
	o := &slowOpener{membox.New(nil), make(chan struct{}), make(chan struct{})}
	defer o.Backend.Close()
	b := newBench(t, o, broker.Limits{MaxInFlight: 1})
	c := b.as("")
	b.send(c, "orders", "x")
	done := make(chan error)
	go func() {
		_, err := c.Receive(context.Background(), "orders", driver.ReceiveRequest{Max: 1, Visibility: time.Minute})
		done <- err
	}()
	<-o.leased
	if err := c.Delete(t.Context(), "orders"); err != nil {
		t.Fatal(err)
	}
	o.goOn <- struct{}{}
	if err := <-done; err != nil {
		t.Log(err)
	}
	if n := b.InFlight(); n != 0 {
		t.Errorf("%d messages are still counted as in flight", n)
	}
}

func TestQuotaCountsTracedMessages(t *testing.T) {
	b := memory(t, broker.Limits{})
	id := b.send(b.as(""), "orders", "x")
	c := b.as("", capability.MessagesPerSecond(1))
	for range 200 {
		if _, err := c.Trace(t.Context(), "orders", id); errors.Is(err, driver.ErrFull) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
	}
	t.Error("a token for 1 message per second read 200 payloads at once")
}

func TestOnlyTakingTokenSettlesWithoutReceipt(t *testing.T) {
	b := memory(t, broker.Limits{})
	root := mint(t, b.ring, "")
	as := func(address string) broker.Caller {
		t.Helper()
		client := netip.MustParseAddr(address)
		narrowed, err := root.Narrow(capability.Networks(netip.PrefixFrom(client, client.BitLen())))
		if err != nil {
			t.Fatal(err)
		}
		return b.Caller(narrowed, broker.Origin{Client: client})
	}
	one, two := as("10.0.0.1"), as("10.0.0.2")
	b.send(one, "orders", "x")
	got := b.receive(one, "orders", 1)
	target := broker.Target{Queue: "orders", ID: got[0].ID}
	expectCode(t, two.AckOne(t.Context(), target), driver.ErrNotFound, "an ack by another token that was narrowed from the same one")
	_, err := b.Caller(root, broker.Origin{}).ExtendOne(t.Context(), target, broker.Extension{Visibility: time.Minute})
	expectCode(t, err, driver.ErrNotFound, "an extension by the token that both were narrowed from")
	if err := one.AckOne(t.Context(), target); err != nil {
		t.Errorf("an ack by the token that took it: %v", err)
	}
	if err := one.AckOne(t.Context(), target); err != nil {
		t.Errorf("the same again: %v", err)
	}
	expectCode(t, two.AckOne(t.Context(), target), driver.ErrNotFound, "the same again by another token")
}

func TestExpiredTokenIsRefusedEverywhere(t *testing.T) {
	b := memory(t, broker.Limits{})
	expired := b.as("", capability.ExpiresAt(time.Now().Add(-time.Hour)))
	early := b.as("", capability.NotBefore(time.Now().Add(time.Hour)))
	for what, c := range map[string]broker.Caller{"expired": expired, "too early": early} {
		expectCode(t, c.Genuine(t.Context()), driver.ErrUnauthenticated, what+": to come in")
		expectCode(t, c.Ping(t.Context()), driver.ErrUnauthenticated, what+": to ping")
	}
	revoked := b.as("")
	if err := b.revoked.Revoke(t.Context(), revocation.Revocation{Token: revoked.TokenID(), At: time.Now().Add(-time.Second)}); err != nil {
		t.Fatal(err)
	}
	if err := revoked.Genuine(t.Context()); err != nil {
		t.Errorf("a revoked token cannot come in to ack what it has taken: %v", err)
	}
	expectCode(t, revoked.Ping(t.Context()), driver.ErrUnauthenticated, "revoked: to ping")
	if err := b.as("").Ping(t.Context()); err != nil {
		t.Errorf("a good token cannot ping: %v", err)
	}
}

func TestTooLongBatchIsRefusedEarly(t *testing.T) {
	b := memory(t, broker.Limits{})
	c := b.as("")
	b.send(c, "orders", "x")
	traits, err := c.Traits(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	const many = 500_000
	messages := make([]broker.Outgoing, many)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err = c.Send(t.Context(), "orders", messages)
	runtime.ReadMemStats(&after)
	expectCode(t, err, driver.ErrTooLarge, "a send of half a million")
	if spent := (after.TotalAlloc - before.TotalAlloc) >> 20; spent > 1 {
		t.Errorf("it cost %d MiB to refuse it", spent)
	}
	n := traits.MaxBatch + 1
	_, err = c.Send(t.Context(), "orders", messages[:n])
	expectCode(t, err, driver.ErrTooLarge, "a send of one too many")
	expectCode(t, c.Ack(t.Context(), "orders", make([]string, n)), driver.ErrTooLarge, "an ack of one too many")
	expectCode(t, c.Nack(t.Context(), "orders", make([]broker.Nack, n)), driver.ErrTooLarge, "a nack of one too many")
	_, err = c.Extend(t.Context(), "orders", make([]broker.Extension, n))
	expectCode(t, err, driver.ErrTooLarge, "an extension of one too many")
	expectCode(t, c.DeadLetter(t.Context(), "orders", make([]broker.DeadLetterRequest, n)), driver.ErrTooLarge, "one dead-letter request too many")
	if stats, err := c.Stats(t.Context(), "orders"); err != nil || stats.Ready != 1 {
		t.Errorf("%+v, %v; want nothing sent", stats, err)
	}
	sent, err := c.Send(t.Context(), "orders", messages[:traits.MaxBatch])
	if err != nil || len(sent) != traits.MaxBatch {
		t.Errorf("a send of as many as are allowed: %d, %v", len(sent), err)
	}
}

func TestStatsTokenCreatesNoQueues(t *testing.T) {
	b := memory(t, broker.Limits{})
	for _, operation := range []capability.Operation{capability.OpStats, capability.OpPeek, capability.OpAck, capability.OpDLQ} {
		_, err := b.as("", capability.Operations(operation)).Traits(t.Context(), "made-by-a-counter")
		expectCode(t, err, driver.ErrNotFound, "traits of a missing queue, for "+operation.String())
	}
	for queue := range b.as("").Queues(t.Context()) {
		t.Errorf("a token that may not send created %s", queue)
	}
	for _, operation := range []capability.Operation{capability.OpSend, capability.OpRecv, capability.OpAdmin} {
		if _, err := b.as("", capability.Operations(operation)).Traits(t.Context(), "made-for-"+operation.String()); err != nil {
			t.Errorf("%s: %v", operation, err)
		}
	}
	b.send(b.as(""), "orders", "x")
	if _, err := b.as("", capability.Operations(capability.OpStats)).Traits(t.Context(), "orders"); err != nil {
		t.Errorf("a queue that exists: %v", err)
	}
}

// TestMessageIDRevealsNoQueueOutsideScope settles a message by id, without a queue, that
// is in a queue which the token does not allow. The answer is that for an unknown id.
func TestMessageIDRevealsNoQueueOutsideScope(t *testing.T) {
	b := memory(t, broker.Limits{})
	owner := b.as("acme")
	id := b.send(owner, "layoffs", "x")
	held := b.receive(owner, "layoffs", 1)[0]
	gone := b.as("acme")
	if err := b.revoked.Revoke(t.Context(), revocation.Revocation{Token: gone.TokenID(), At: time.Now().Add(-time.Second)}); err != nil {
		t.Fatal(err)
	}
	const nothing = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
	settlements := map[string]func(c broker.Caller, target broker.Target) error{
		"ack": func(c broker.Caller, target broker.Target) error { return c.AckOne(t.Context(), target) },
		"nack": func(c broker.Caller, target broker.Target) error {
			return c.NackOne(t.Context(), target, broker.Nack{})
		},
		"extend": func(c broker.Caller, target broker.Target) error {
			_, err := c.ExtendOne(t.Context(), target, broker.Extension{Visibility: time.Minute})
			return err
		},
		"dead-letter": func(c broker.Caller, target broker.Target) error {
			return c.DeadLetterOne(t.Context(), target, broker.DeadLetterRequest{Reason: driver.ReasonFatal})
		},
	}
	for name, caller := range map[string]broker.Caller{
		"a token for another queue":     b.as("acme", capability.AllOperations(), capability.Queues(capability.Queue("lunch"))),
		"a token that only receives":    b.as("acme", capability.Operations(capability.OpRecv), capability.Queues(capability.Queue("lunch"))),
		"a token that was revoked":      gone,
		"a token of an unknown receipt": b.as("acme", capability.AllOperations(), capability.Queues(capability.Queue("lunch")), capability.ForReceipt("x")),
	} {
		for what, settle := range settlements {
			for _, receipt := range []string{"", held.Receipt, "garbage"} {
				found, unknown := settle(caller, broker.Target{ID: id, Receipt: receipt}), settle(caller, broker.Target{ID: nothing, Receipt: receipt})
				if found == nil || unknown == nil || strings.ReplaceAll(found.Error(), id, nothing) != unknown.Error() || strings.Contains(found.Error(), "layoffs") {
					t.Errorf("%s, %s with receipt %.10q:\n got %v\nwant %v", name, what, receipt, found, unknown)
				}
			}
		}
	}
	if err := owner.AckOne(t.Context(), broker.Target{ID: id}); err != nil {
		t.Errorf("the owner's ack: %v", err)
	}
}

// TestRevokedTokenCannotProbeForQueues settles with garbage, in a queue that
// exists and in one that does not.
func TestRevokedTokenCannotProbeForQueues(t *testing.T) {
	b := memory(t, broker.Limits{})
	b.send(b.as(""), "there", "x")
	gone := b.as("")
	if err := b.revoked.Revoke(t.Context(), revocation.Revocation{Token: gone.TokenID(), At: time.Now().Add(-time.Second)}); err != nil {
		t.Fatal(err)
	}
	for _, caller := range []broker.Caller{gone, gone.Existing()} {
		for what, settle := range map[string]func(queue string) error{
			"ack": func(queue string) error { return caller.Ack(t.Context(), queue, []string{"garbage", ""}) },
			"nack": func(queue string) error {
				return caller.Nack(t.Context(), queue, []broker.Nack{{Receipt: "garbage"}})
			},
			"extend": func(queue string) error {
				_, err := caller.Extend(t.Context(), queue, []broker.Extension{{Receipt: "garbage", Visibility: time.Minute}})
				return err
			},
			"dead-letter": func(queue string) error {
				return caller.DeadLetter(t.Context(), queue, []broker.DeadLetterRequest{{Receipt: "garbage", Reason: driver.ReasonFatal}})
			},
			"ack by id": func(queue string) error {
				return caller.AckOne(t.Context(), broker.Target{Queue: queue, ID: "01ARZ3NDEKTSV4RRFFQ69G5FAV"})
			},
		} {
			there, missing := settle("there"), settle("gone!")
			if there == nil || missing == nil || strings.ReplaceAll(there.Error(), "there", "gone!") != missing.Error() {
				t.Errorf("%s: %v where the queue exists, and %v where not", what, there, missing)
			}
		}
	}
}

// TestForgedTokensDoNotFillTheLog presents a thousand forged tokens in ten seconds.
func TestForgedTokensDoNotFillTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory(t, broker.Limits{})
		forged := b.Caller(mint(t, keyring.New(keyring.NewKey()), ""), broker.Origin{})
		for range 1000 {
			expectCode(t, forged.Genuine(t.Context()), driver.ErrUnauthenticated, "a forged token")
			time.Sleep(10 * time.Millisecond)
		}
		lines := strings.Count(b.log.String(), "auth.denied")
		if lines < 20 || lines > 30 {
			t.Errorf("%d lines for 1000 forged tokens, want a burst of 20 and one in 2 s", lines)
		}
		// The refusal of a genuine token is still logged.
		_, err := b.as("", capability.Operations(capability.OpRecv), capability.Queues(capability.AnyQueue())).Send(t.Context(), "orders", say("x"))
		expectCode(t, err, driver.ErrForbidden, "a token that may not send")
		if now := strings.Count(b.log.String(), "auth.denied"); now != lines+1 {
			t.Errorf("%d lines for the refusal of a genuine token, want 1", now-lines)
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		suppressed := 0
		for line := range strings.Lines(b.log.String()) {
			var fields struct{ Suppressed int }
			if err := json.Unmarshal([]byte(line), &fields); err != nil {
				t.Fatal(err)
			}
			suppressed += fields.Suppressed
		}
		if suppressed != 1000-lines {
			t.Errorf("the log says that %d lines were suppressed, want %d", suppressed, 1000-lines)
		}
	})
}
