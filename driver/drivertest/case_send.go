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
	{id: "SND-1", title: "the traits are complete", run: traitsAreComplete},

	{id: "SND-2", title: "hundreds of delays in any order are all kept", run: manyDelaysAreKept, repeats: true},

	{id: "SND-2", title: "hundreds of due times in any order are all kept", needs: []need{needDeliverAt}, run: manyDueTimesAreKept, repeats: true},
	{id: "SND-2", title: "a due time that is too far ahead is refused, and one that is not is kept", needs: []need{needDeliverAt}, run: dueTimesHaveALimit},
	{id: "CNT-2", title: "peek tells due times and when delays end, in order", needs: []need{needDeliverAt, needPeek}, run: peekTellsDueTimes},

	{id: "SND-3", title: "bodies are kept to the byte", run: bodiesAreExact},
	{id: "SND-3", title: "a body of exactly the largest size is kept", run: largestBodyIsKept},
	{id: "SND-3", title: "attributes are kept exactly", run: attributesAreExact},
	{id: "SND-3", title: "attributes at every limit are kept", run: attributesAtTheLimitAreKept},
	{id: "SND-3", title: "what the caller does to body and attributes later changes nothing", run: callerKeepsItsMemory},

	{id: "SND-4", title: "an empty batch does nothing", run: emptySendDoesNothing},

	{id: "SND-6", title: "a failed send leaves nothing behind", run: failedSendLeavesNothing},
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

func manyDelaysAreKept(e *env, q driver.Queue) {
	due := make(map[string]time.Time)
	for _, body := range numbered("m", e.rounds(500, 50)) {
		delay := rand.N(3 * e.tick())
		due[body] = time.Now().Add(delay)
		e.sendLater(q, delay, body)
	}
	e.expectArrivals(q, due)
}

func manyDueTimesAreKept(e *env, q driver.Queue) {
	due := make(map[string]time.Time)
	for _, body := range numbered("m", e.rounds(500, 50)) {
		due[body] = time.Now().Add(rand.N(3 * e.tick()))
		e.sendOne(q, driver.Outgoing{Body: []byte(body), DeliverAt: due[body]})
	}
	e.expectArrivals(q, due)
}

func dueTimesHaveALimit(e *env, q driver.Queue) {
	longest := q.Traits().MaxDelay
	for what, at := range map[string]time.Time{
		"a due time that is too far ahead":    time.Now().Add(longest + time.Minute),
		"a due time in the next century":      time.Date(2199, 1, 1, 0, 0, 0, 0, time.UTC),
		"a due time in the next ten thousand": time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC),
	} {
		e.expectBadSend(q, driver.Outgoing{DeliverAt: at}, driver.ErrInvalid, longest, what)
	}
	e.sendOne(q, driver.Outgoing{Body: []byte("latest"), DeliverAt: time.Now().Add(longest - time.Minute)})
	e.sendOne(q, driver.Outgoing{Body: []byte("long past"), DeliverAt: time.Date(1, 2, 3, 4, 5, 6, 7, time.UTC)})
	e.expectNext(q, "long past")
	e.expectNothing(q)
	e.expectStats(q, driver.Stats{Delayed: 1, InFlight: 1})
}

func peekTellsDueTimes(e *env, q driver.Queue) {
	at := time.Now().Add(e.hold).Truncate(time.Millisecond)
	e.sendOne(q, driver.Outgoing{Body: []byte("due"), DeliverAt: at})
	e.sendLater(q, e.hold+e.hold/2, "delayed")
	e.sendOne(q, driver.Outgoing{Body: []byte("due later"), DeliverAt: at.Add(e.hold)})
	var got []string
	for _, peeked := range e.peek(q, driver.Query{States: []driver.State{driver.StateDelayed}}) {
		got = append(got, string(peeked.Body))
		if string(peeked.Body) == "due" && !peeked.DueAt.Equal(at) {
			e.failf("peek: due at %v, want %v", peeked.DueAt, at)
		}
	}
	if want := []string{"due", "delayed", "due later"}; !slices.Equal(got, want) {
		e.failf("peek at delayed messages: got %q, want %q", got, want)
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

// trySend sends one body and returns the error.
func trySend(e *env, q driver.Queue, body string) error {
	_, err := q.Send(e.ctx(), []driver.Outgoing{{Body: []byte(body)}})
	return err
}

func failedSendLeavesNothing(e *env, q driver.Queue) {
	traits := q.Traits()
	for _, bad := range []driver.Outgoing{
		{Body: []byte("bad"), Delay: -1},
		{Body: []byte("bad"), Delay: traits.MaxDelay + time.Microsecond},
		{Body: []byte("bad"), ReplyTo: strings.Repeat("r", driver.MaxReplyToBytes+1)},
		{Body: []byte("bad"), Attributes: map[string]string{"": "v"}},
		{Body: make([]byte, traits.MaxBodyBytes+1)},
	} {
		if _, err := q.Send(e.ctx(), []driver.Outgoing{bad}); err == nil {
			e.failf("send of a bad message: got nil, want an error")
		}
		e.expectEmpty(q)
	}
	e.send(q, "good")
	e.expectNext(q, "good")
}
