package drivertest

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

var sendCases = []testCase{
	{id: "SND-1", title: "a sent message has a ULID that is unique in the queue", run: sendGivesUniqueULIDs},
	{id: "SND-1", title: "what was sent is what is delivered, under the id that send returned", run: sendIsDelivered},
	{id: "SND-1", title: "the traits are complete", run: traitsAreComplete},
	{id: "SND-1", title: "two names are two queues", run: namesAreSeparateQueues},
	{id: "SND-1", title: "two handles with one name are one queue", run: handlesShareTheQueue},

	{id: "SND-2", title: "a delayed message is counted and cannot be received", run: delayedMessageIsCounted},
	{id: "SND-2", title: "a delayed message arrives when its delay is over, not before", run: delayedMessageArrivesWhenDue},
	{id: "SND-2", title: "delayed messages arrive each at its own time", run: delaysAreIndependent},
	{id: "SND-2", title: "hundreds of delays in any order are all kept", run: manyDelaysAreKept},
	{id: "SND-2", title: "a delayed message does not hold up later ones", run: delayHoldsUpNoOther},
	{id: "SND-2", title: "a delay does not cost a message its place", needs: []need{needFIFO}, run: delayKeepsPlace},
	{id: "SND-2", title: "the longest delay is honoured", run: longestDelayIsHonoured},

	{id: "SND-3", title: "bodies are kept to the byte", run: bodiesAreExact},
	{id: "SND-3", title: "a body of exactly the largest size is kept", run: largestBodyIsKept},
	{id: "SND-3", title: "attributes are kept exactly", run: attributesAreExact},
	{id: "SND-3", title: "attributes at every limit are kept", run: attributesAtTheLimitAreKept},
	{id: "SND-3", title: "what the caller does to body and attributes later changes nothing", run: callerKeepsItsMemory},

	{id: "SND-4", title: "a batch has one result for each message, in order", run: batchResultsAreInOrder},
	{id: "SND-4", title: "a failed message in a batch keeps its position and costs the others nothing", run: batchFailureKeepsPosition},
	{id: "SND-4", title: "a batch that fails as a whole says so for each message", run: batchMayFailEverywhere},
	{id: "SND-4", title: "an empty batch does nothing", run: emptySendDoesNothing},

	{
		id: "SND-5", title: "a send over the bound on messages is refused with a hint when to come back",
		config: always(driver.Config{MaxMessages: 2}), run: capacityByCount,
	},
	{
		id: "SND-5", title: "a send over the bound on bytes is refused with a hint when to come back",
		config: always(driver.Config{MaxBytes: 10}), run: capacityByBytes,
	},
	{
		id: "SND-5", title: "delayed and in-flight messages take room, acked ones do not",
		config: always(driver.Config{MaxMessages: 3}), run: capacityCountsAllThatWaits,
	},
	{
		id: "SND-5", title: "dead letters take no room",
		config: always(driver.Config{MaxMessages: 1}), needs: []need{needDeadLetters}, run: deadLettersTakeNoRoom,
	},
	{
		id: "SND-5", title: "a message that dies by the clock alone makes room",
		config: always(driver.Config{MaxMessages: 1, MaxDeliveries: 1}), needs: []need{needDeadLetters}, run: deathByTheClockMakesRoom,
	},
	{
		id: "SND-5", title: "purge and death make room for bytes",
		config: always(driver.Config{MaxBytes: 10}), needs: []need{needDeadLetters}, run: purgeAndDeathFreeBytes,
	},
	{
		id: "SND-5", title: "lowering the bound below what is there keeps it and refuses more",
		config: always(driver.Config{MaxMessages: 5}), run: loweredCapacityKeeps,
	},
	{
		id: "SND-5", title: "of a batch, what fits is sent",
		config: always(driver.Config{MaxMessages: 2}), run: batchOverCapacityIsSplit,
	},
	{
		id: "SND-5", title: "of a batch, a small message fits where a large one did not",
		config: always(driver.Config{MaxBytes: 10}), run: batchOverBytesIsSplit,
	},

	{id: "SND-6", title: "a failed send leaves nothing behind", run: failedSendLeavesNothing},
	{
		id: "SND-6", title: "a send refused for lack of room does not use up its dedup key",
		config: always(driver.Config{MaxMessages: 1}), needs: []need{needDedup}, run: failedSendKeepsDedupKeyFree,
	},
}

var ulid = regexp.MustCompile(`^[0-7][0-9A-HJKMNP-TV-Z]{25}$`)

func sendGivesUniqueULIDs(e *env, q driver.Queue) {
	var ids []string
	for range 20 {
		ids = append(ids, e.send(q, "a", "b", "c", "d", "e")...)
		ids = append(ids, e.send(q, "single")...)
	}
	for _, id := range ids {
		if !ulid.MatchString(id) {
			e.failf("send: got id %q, want a ULID", id)
		}
	}
	slices.Sort(ids)
	if distinct := len(slices.Compact(slices.Clone(ids))); distinct != len(ids) {
		e.failf("send: %d messages have only %d ids between them", len(ids), distinct)
	}
}

func sendIsDelivered(e *env, q driver.Queue) {
	ids := e.send(q, "a", "b", "c")
	e.expectStats(q, driver.Stats{Ready: 3})
	got := e.expectNext(q, "a", "b", "c")
	for i, d := range got {
		if d.ID != ids[i] {
			e.failf("delivery of %q: got id %s, want %s as send said", d.Body, d.ID, ids[i])
		}
	}
	e.expectNothing(q)
}

func traitsAreComplete(e *env, q driver.Queue) {
	traits := q.Traits()
	if !slices.Contains([]driver.Ordering{driver.OrderingNone, driver.OrderingFIFO, driver.OrderingPerShard}, traits.Ordering) {
		e.failf("Traits.Ordering: got %q, want one of the constants", traits.Ordering)
	}
	if !slices.Contains([]driver.Durability{
		driver.DurabilityNone, driver.DurabilityProcess,
		driver.DurabilityDisk, driver.DurabilityReplicated,
	}, traits.Durability) {
		e.failf("Traits.Durability: got %q, want one of the constants", traits.Durability)
	}
	for _, limit := range []struct {
		name     string
		positive bool
	}{
		{"MaxBodyBytes", traits.MaxBodyBytes > 0},
		{"MaxAttributes", traits.MaxAttributes > 0},
		{"MaxAttributeBytes", traits.MaxAttributeBytes > 0},
		{"MaxBatch", traits.MaxBatch > 0},
		{"MaxDelay", traits.MaxDelay > 0},
		{"MaxVisibility", traits.MaxVisibility > 0},
	} {
		if !limit.positive {
			e.failf("Traits.%s is not positive: %+v", limit.name, traits)
		}
	}
	if again := q.Traits(); again != traits {
		e.failf("Traits: got %+v and then %+v, want the same answer", traits, again)
	}
	if traits.DeadLetters {
		e.ok(q.DeadLetter(e.ctx(), nil), "Traits.DeadLetters is set: dead-letter of nothing")
	}
	for _, a := range abilities {
		if !a.has(traits) {
			a.expectRefused(e, q)
		}
	}
}

func namesAreSeparateQueues(e *env, q driver.Queue) {
	other := e.open("invoices")
	e.send(q, "order")
	e.expectEmpty(other)
	e.send(other, "invoice")
	e.expectNext(q, "order")
	e.expectNext(other, "invoice")
}

func handlesShareTheQueue(e *env, q driver.Queue) {
	other := e.open(queueName)
	e.send(q, "a")
	e.expectStats(other, driver.Stats{Ready: 1})
	got := e.expectNext(other, "a")
	e.expectNothing(q)
	e.expectStats(q, driver.Stats{InFlight: 1})
	e.ack(q, got...) // a receipt belongs to the queue, not to the handle
	e.expectStats(other, driver.Stats{})
	e.expectCode(tryAck(e, other, got[0]), driver.ErrReceiptExpired, "ack on one handle of what was acked on another")
}

func delayedMessageIsCounted(e *env, q driver.Queue) {
	e.sendLater(q, e.hold, "later")
	e.expectStats(q, driver.Stats{Delayed: 1})
	e.expectNothing(q)
	e.expectStats(q, driver.Stats{Delayed: 1})
}

func delayedMessageArrivesWhenDue(e *env, q driver.Queue) {
	sent := time.Now()
	e.sendLater(q, e.tick, "later")
	got := e.expectArrival(q, sent.Add(e.tick), "later")
	if got[0].Deliveries != 1 {
		e.failf("a delayed message arrives for the first time: got Deliveries %d, want 1", got[0].Deliveries)
	}
	e.expectStats(q, driver.Stats{InFlight: 1})
}

func delaysAreIndependent(e *env, q driver.Queue) {
	sent := time.Now()
	e.sendLater(q, 3*e.tick, "third")
	e.sendLater(q, e.tick, "first")
	e.sendLater(q, 2*e.tick, "second")
	e.expectArrivals(q, map[string]time.Time{
		"first": sent.Add(e.tick), "second": sent.Add(2 * e.tick), "third": sent.Add(3 * e.tick),
	})
}

func manyDelaysAreKept(e *env, q driver.Queue) {
	due := make(map[string]time.Time)
	for _, body := range numbered("m", e.rounds(500, 50)) {
		delay := rand.N(3 * e.tick)
		due[body] = time.Now().Add(delay)
		e.sendLater(q, delay, body)
	}
	e.expectArrivals(q, due)
}

func delayHoldsUpNoOther(e *env, q driver.Queue) {
	e.sendLater(q, e.hold, "later")
	e.send(q, "now")
	e.expectNext(q, "now")
	e.expectStats(q, driver.Stats{Delayed: 1, InFlight: 1})
}

func delayKeepsPlace(e *env, q driver.Queue) {
	e.send(q, "a")
	e.sendLater(q, e.tick, "b")
	e.send(q, "c")
	e.sleep(e.tick)
	e.expectNext(q, "a", "b", "c")
}

func longestDelayIsHonoured(e *env, q driver.Queue) {
	longest := q.Traits().MaxDelay
	sent := time.Now()
	e.sendLater(q, longest, "much later")
	e.expectStats(q, driver.Stats{Delayed: 1})
	e.expectNothing(q)
	if e.backend.Virtual {
		e.sleep(longest - time.Millisecond)
		e.expectNothing(q)
		e.expectArrival(q, sent.Add(longest), "much later")
	}
}

func bodiesAreExact(e *env, q driver.Queue) {
	everyByte := make([]byte, 256)
	for i := range everyByte {
		everyByte[i] = byte(i)
	}
	for what, body := range map[string][]byte{
		"nil":                        nil,
		"empty":                      {},
		"a zero byte":                {0},
		"every byte":                 everyByte,
		"text that is not UTF-8":     []byte("\xff\xfe\x00\xc3\x28"),
		"line ends":                  []byte("\r\n\n\r \t"),
		"what looks like base64":     []byte("aGVsbG8="),
		"what looks like a document": []byte(`{"body":"\u0000<&>"}`),
	} {
		e.sendOne(q, driver.Outgoing{Body: body})
		got := e.receive(q, 1)
		if !slices.Equal(got[0].Body, body) {
			e.failf("body of %s: got %q, want %q", what, got[0].Body, body)
		}
		e.ack(q, got...)
	}
}

func largestBodyIsKept(e *env, q driver.Queue) {
	const sane = 64 << 20 // keeps the test small on any machine
	size := min(q.Traits().MaxBodyBytes, sane)
	body := make([]byte, size)
	for i := range body {
		body[i] = byte(i * 31 >> 3)
	}
	e.sendOne(q, driver.Outgoing{Body: body})
	if got := e.receive(q, 1); !slices.Equal(got[0].Body, body) {
		e.failf("a body of %d bytes came back changed, with %d bytes", size, len(got[0].Body))
	}
}

func attributesAreExact(e *env, q driver.Queue) {
	for _, attributes := range []map[string]string{
		nil,
		{"key": "value"},
		{"empty": ""},
		{"Key": "upper", "key": "lower", " key ": "spaces"},
		{"größe": "Ünïcödé ✓ 漢字 \U0001F4EC", "ключ": "\u202eobrat"},
		{"quotes": `"'\`, "lines": "a\r\nb\tc", "zero": "a\x00b", "markup": "<a>&amp;</a>"},
		{"a.b:c/d-e_f": "separators", "1": "number"},
	} {
		e.sendOne(q, driver.Outgoing{Body: []byte("x"), Attributes: attributes})
		got := e.receive(q, 1)
		if !maps.Equal(got[0].Attributes, attributes) {
			e.failf("attributes: got %q, want %q", got[0].Attributes, attributes)
		}
		e.ack(q, got...)
	}
}

func attributesAtTheLimitAreKept(e *env, q driver.Queue) {
	traits := q.Traits()
	most, size := make(map[string]string), 0
	for i := range traits.MaxAttributes {
		key, value := fmt.Sprintf("key-%d", i), fmt.Sprintf("value-%d", i)
		most[key] = value
		size += len(key) + len(value)
	}
	full := maps.Clone(most)
	full["key-0"] += strings.Repeat("v", traits.MaxAttributeBytes-size)
	longestKey := strings.Repeat("k", driver.MaxAttributeKeyBytes)
	for what, msg := range map[string]driver.Outgoing{
		"as many as allowed":                      {Attributes: most},
		"a key as long as allowed":                {Attributes: map[string]string{longestKey: "v"}},
		"as large as allowed":                     {Attributes: map[string]string{"k": strings.Repeat("v", traits.MaxAttributeBytes-1)}},
		"all of it, and texts as long as allowed": longestTexts(&traits, full),
	} {
		msg.Body = []byte("x")
		id := e.sendOne(q, msg).ID
		got := e.receive(q, 1)
		if !maps.Equal(got[0].Attributes, msg.Attributes) {
			e.failf("attributes, %s: came back changed, with %d entries", what, len(got[0].Attributes))
		}
		e.expectMessage(got[0].Message, msg, id, 1)
		e.ack(q, got...)
	}
}

func callerKeepsItsMemory(e *env, q driver.Queue) {
	msgs := []driver.Outgoing{{Body: []byte("before"), Attributes: map[string]string{"k": "before"}}}
	_, err := q.Send(e.ctx(), msgs)
	e.ok(err, "send")
	copy(msgs[0].Body, "after!")
	msgs[0].Attributes["k"] = "after"
	msgs[0].Attributes["new"] = "after"
	msgs[0] = driver.Outgoing{}

	got := e.expectNext(q, "before")
	if want := map[string]string{"k": "before"}; !maps.Equal(got[0].Attributes, want) {
		e.failf("attributes after the caller changed its map: got %q, want %q", got[0].Attributes, want)
	}
}

func batchResultsAreInOrder(e *env, q driver.Queue) {
	want := make(map[string]string)
	ids := e.send(q, "a", "b", "c", "d", "e")
	for i, body := range []string{"a", "b", "c", "d", "e"} {
		want[ids[i]] = body
	}
	for _, d := range e.receive(q, 5) {
		if want[d.ID] != string(d.Body) {
			e.failf("message %s has body %q, but send returned this id for %q", d.ID, d.Body, want[d.ID])
		}
	}
}

func batchFailureKeepsPosition(e *env, q driver.Queue) {
	sent, err := q.Send(e.ctx(), []driver.Outgoing{
		{Body: []byte("a")},
		{Body: []byte("bad"), Delay: -time.Second},
		{Body: []byte("c")},
		{Body: []byte("bad"), Attributes: map[string]string{"": "no key"}},
		{Body: []byte("e")},
	})
	e.expectPositions(err, "send of a batch with two bad messages", fine, driver.ErrInvalid, fine, driver.ErrInvalid, fine)
	if len(sent) != 5 {
		e.failf("send of 5 messages, 2 of them bad: got %d results, want 5", len(sent))
	}
	for i, bad := range []bool{false, true, false, true, false} {
		if (sent[i].ID == "") != bad {
			e.failf("send of a batch with two bad messages: position %d has id %q, want one only for good messages", i, sent[i].ID)
		}
	}
	e.expectStats(q, driver.Stats{Ready: 3})
	for i, d := range e.expectNext(q, "a", "c", "e") {
		if want := sent[2*i].ID; d.ID != want {
			e.failf("delivery of %q: got id %s, want %s as send said", d.Body, d.ID, want)
		}
	}
}

func batchMayFailEverywhere(e *env, q driver.Queue) {
	bad := driver.Outgoing{Body: []byte("bad"), Delay: -time.Second}
	_, err := q.Send(e.ctx(), []driver.Outgoing{bad, bad})
	e.expectPositions(err, "send of two bad messages", driver.ErrInvalid, driver.ErrInvalid)
	_, err = q.Send(e.ctx(), []driver.Outgoing{bad})
	e.expectPositions(err, "send of one bad message", driver.ErrInvalid)
	e.expectEmpty(q)
}

func emptySendDoesNothing(e *env, q driver.Queue) {
	for _, empty := range [][]driver.Outgoing{nil, {}} {
		sent, err := q.Send(e.ctx(), empty)
		e.ok(err, "send of no messages")
		if len(sent) != 0 {
			e.failf("send of no messages: got %d results", len(sent))
		}
	}
	e.expectEmpty(q)
}
