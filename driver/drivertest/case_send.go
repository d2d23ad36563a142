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
	{id: "SND-2", title: "a delayed message does not hold up later ones", run: delayHoldsUpNobody},
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

func sendGivesUniqueULIDs(s *session, q driver.Queue) {
	var ids []string
	for range 20 {
		ids = append(ids, s.send(q, "a", "b", "c", "d", "e")...)
		ids = append(ids, s.send(q, "single")...)
	}
	for _, id := range ids {
		if !ulid.MatchString(id) {
			s.failf("send: got id %q, want a ULID", id)
		}
	}
	slices.Sort(ids)
	if distinct := len(slices.Compact(slices.Clone(ids))); distinct != len(ids) {
		s.failf("send: %d messages have only %d ids between them", len(ids), distinct)
	}
}

func sendIsDelivered(s *session, q driver.Queue) {
	ids := s.send(q, "a", "b", "c")
	s.expectStats(q, driver.Stats{Ready: 3})
	got := s.expectNext(q, "a", "b", "c")
	for i, d := range got {
		if d.ID != ids[i] {
			s.failf("delivery of %q: got id %s, want %s as send said", d.Body, d.ID, ids[i])
		}
	}
	s.expectNothing(q)
}

func traitsAreComplete(s *session, q driver.Queue) {
	traits := q.Traits()
	if !slices.Contains([]driver.Ordering{driver.OrderingNone, driver.OrderingFIFO, driver.OrderingPerShard}, traits.Ordering) {
		s.failf("Traits.Ordering: got %q, want one of the constants", traits.Ordering)
	}
	if !slices.Contains([]driver.Durability{
		driver.DurabilityNone, driver.DurabilityProcess,
		driver.DurabilityDisk, driver.DurabilityReplicated,
	}, traits.Durability) {
		s.failf("Traits.Durability: got %q, want one of the constants", traits.Durability)
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
			s.failf("Traits.%s is not positive: %+v", limit.name, traits)
		}
	}
	if again := q.Traits(); again != traits {
		s.failf("Traits: got %+v and then %+v, want the same answer", traits, again)
	}
	if traits.DeadLetters {
		s.ok(q.DeadLetter(s.ctx(), nil), "Traits.DeadLetters is set: dead-letter of nothing")
	}
	for _, a := range abilities {
		if !a.has(traits) {
			a.expectRefused(s, q)
		}
	}
}

func namesAreSeparateQueues(s *session, q driver.Queue) {
	other := s.open("invoices")
	s.send(q, "order")
	s.expectEmpty(other)
	s.send(other, "invoice")
	s.expectNext(q, "order")
	s.expectNext(other, "invoice")
}

func handlesShareTheQueue(s *session, q driver.Queue) {
	other := s.open(queueName)
	s.send(q, "a")
	s.expectStats(other, driver.Stats{Ready: 1})
	got := s.expectNext(other, "a")
	s.expectNothing(q)
	s.expectStats(q, driver.Stats{InFlight: 1})
	s.ack(q, got...) // a receipt belongs to the queue, not to the handle
	s.expectStats(other, driver.Stats{})
	s.expectCode(tryAck(s, other, got[0]), driver.ErrReceiptExpired, "ack on one handle of what was acked on another")
}

func delayedMessageIsCounted(s *session, q driver.Queue) {
	s.sendLater(q, s.hold, "later")
	s.expectStats(q, driver.Stats{Delayed: 1})
	s.expectNothing(q)
	s.expectStats(q, driver.Stats{Delayed: 1})
}

func delayedMessageArrivesWhenDue(s *session, q driver.Queue) {
	sent := time.Now()
	s.sendLater(q, s.tick, "later")
	got := s.expectArrival(q, sent.Add(s.tick), "later")
	if got[0].Deliveries != 1 {
		s.failf("a delayed message arrives for the first time: got Deliveries %d, want 1", got[0].Deliveries)
	}
	s.expectStats(q, driver.Stats{InFlight: 1})
}

func delaysAreIndependent(s *session, q driver.Queue) {
	sent := time.Now()
	s.sendLater(q, 3*s.tick, "third")
	s.sendLater(q, s.tick, "first")
	s.sendLater(q, 2*s.tick, "second")
	s.expectArrivals(q, map[string]time.Time{
		"first": sent.Add(s.tick), "second": sent.Add(2 * s.tick), "third": sent.Add(3 * s.tick),
	})
}

func manyDelaysAreKept(s *session, q driver.Queue) {
	due := make(map[string]time.Time)
	for _, body := range numbered("m", s.rounds(500, 50)) {
		delay := rand.N(3 * s.tick)
		due[body] = time.Now().Add(delay)
		s.sendLater(q, delay, body)
	}
	s.expectArrivals(q, due)
}

func delayHoldsUpNobody(s *session, q driver.Queue) {
	s.sendLater(q, s.hold, "later")
	s.send(q, "now")
	s.expectNext(q, "now")
	s.expectStats(q, driver.Stats{Delayed: 1, InFlight: 1})
}

func delayKeepsPlace(s *session, q driver.Queue) {
	s.send(q, "a")
	s.sendLater(q, s.tick, "b")
	s.send(q, "c")
	s.sleep(s.tick)
	s.expectNext(q, "a", "b", "c")
}

func longestDelayIsHonoured(s *session, q driver.Queue) {
	longest := q.Traits().MaxDelay
	sent := time.Now()
	s.sendLater(q, longest, "much later")
	s.expectStats(q, driver.Stats{Delayed: 1})
	s.expectNothing(q)
	if s.backend.Virtual {
		s.sleep(longest - time.Millisecond)
		s.expectNothing(q)
		s.expectArrival(q, sent.Add(longest), "much later")
	}
}

func bodiesAreExact(s *session, q driver.Queue) {
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
		s.sendOne(q, driver.Outgoing{Body: body})
		got := s.receive(q, 1)
		if !slices.Equal(got[0].Body, body) {
			s.failf("body of %s: got %q, want %q", what, got[0].Body, body)
		}
		s.ack(q, got...)
	}
}

func largestBodyIsKept(s *session, q driver.Queue) {
	const sane = 64 << 20 // nobody's test machine should need more
	size := min(q.Traits().MaxBodyBytes, sane)
	body := make([]byte, size)
	for i := range body {
		body[i] = byte(i * 31 >> 3)
	}
	s.sendOne(q, driver.Outgoing{Body: body})
	if got := s.receive(q, 1); !slices.Equal(got[0].Body, body) {
		s.failf("a body of %d bytes came back changed, with %d bytes", size, len(got[0].Body))
	}
}

func attributesAreExact(s *session, q driver.Queue) {
	for _, attributes := range []map[string]string{
		nil,
		{"key": "value"},
		{"empty": ""},
		{"Key": "upper", "key": "lower", " key ": "spaces"},
		{"größe": "Ünïcödé ✓ 漢字 \U0001F4EC", "ключ": "\u202eobrat"},
		{"quotes": `"'\`, "lines": "a\r\nb\tc", "zero": "a\x00b", "markup": "<a>&amp;</a>"},
		{"a.b:c/d-e_f": "separators", "1": "number"},
	} {
		s.sendOne(q, driver.Outgoing{Body: []byte("x"), Attributes: attributes})
		got := s.receive(q, 1)
		if !maps.Equal(got[0].Attributes, attributes) {
			s.failf("attributes: got %q, want %q", got[0].Attributes, attributes)
		}
		s.ack(q, got...)
	}
}

func attributesAtTheLimitAreKept(s *session, q driver.Queue) {
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
		id := s.sendOne(q, msg).ID
		got := s.receive(q, 1)
		if !maps.Equal(got[0].Attributes, msg.Attributes) {
			s.failf("attributes, %s: came back changed, with %d entries", what, len(got[0].Attributes))
		}
		s.expectMessage(got[0].Message, msg, id, 1)
		s.ack(q, got...)
	}
}

func callerKeepsItsMemory(s *session, q driver.Queue) {
	msgs := []driver.Outgoing{{Body: []byte("before"), Attributes: map[string]string{"k": "before"}}}
	_, err := q.Send(s.ctx(), msgs)
	s.ok(err, "send")
	copy(msgs[0].Body, "after!")
	msgs[0].Attributes["k"] = "after"
	msgs[0].Attributes["new"] = "after"
	msgs[0] = driver.Outgoing{}

	got := s.expectNext(q, "before")
	if want := map[string]string{"k": "before"}; !maps.Equal(got[0].Attributes, want) {
		s.failf("attributes after the caller changed its map: got %q, want %q", got[0].Attributes, want)
	}
}

func batchResultsAreInOrder(s *session, q driver.Queue) {
	want := make(map[string]string)
	ids := s.send(q, "a", "b", "c", "d", "e")
	for i, body := range []string{"a", "b", "c", "d", "e"} {
		want[ids[i]] = body
	}
	for _, d := range s.receive(q, 5) {
		if want[d.ID] != string(d.Body) {
			s.failf("message %s has body %q, but send returned this id for %q", d.ID, d.Body, want[d.ID])
		}
	}
}

func batchFailureKeepsPosition(s *session, q driver.Queue) {
	sent, err := q.Send(s.ctx(), []driver.Outgoing{
		{Body: []byte("a")},
		{Body: []byte("bad"), Delay: -time.Second},
		{Body: []byte("c")},
		{Body: []byte("bad"), Attributes: map[string]string{"": "no key"}},
		{Body: []byte("e")},
	})
	s.expectPositions(err, "send of a batch with two bad messages", fine, driver.ErrInvalid, fine, driver.ErrInvalid, fine)
	if len(sent) != 5 {
		s.failf("send of 5 messages, 2 of them bad: got %d results, want 5", len(sent))
	}
	for i, bad := range []bool{false, true, false, true, false} {
		if (sent[i].ID == "") != bad {
			s.failf("send of a batch with two bad messages: position %d has id %q, want one only for good messages", i, sent[i].ID)
		}
	}
	s.expectStats(q, driver.Stats{Ready: 3})
	for i, d := range s.expectNext(q, "a", "c", "e") {
		if want := sent[2*i].ID; d.ID != want {
			s.failf("delivery of %q: got id %s, want %s as send said", d.Body, d.ID, want)
		}
	}
}

func batchMayFailEverywhere(s *session, q driver.Queue) {
	bad := driver.Outgoing{Body: []byte("bad"), Delay: -time.Second}
	_, err := q.Send(s.ctx(), []driver.Outgoing{bad, bad})
	s.expectPositions(err, "send of two bad messages", driver.ErrInvalid, driver.ErrInvalid)
	_, err = q.Send(s.ctx(), []driver.Outgoing{bad})
	s.expectPositions(err, "send of one bad message", driver.ErrInvalid)
	s.expectEmpty(q)
}

func emptySendDoesNothing(s *session, q driver.Queue) {
	for _, empty := range [][]driver.Outgoing{nil, {}} {
		sent, err := q.Send(s.ctx(), empty)
		s.ok(err, "send of no messages")
		if len(sent) != 0 {
			s.failf("send of no messages: got %d results", len(sent))
		}
	}
	s.expectEmpty(q)
}
