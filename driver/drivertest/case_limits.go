package drivertest

import (
	"fmt"
	"strings"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

var limitCases = []testCase{
	{id: "SND-1", title: "bad queue names are refused", run: badNamesAreRefused},
	{id: "SND-1", title: "odd but good queue names work", run: oddNamesWork},
	{id: "SND-2", title: "a delay outside its limits is refused", run: badDelaysAreRefused},
	{id: "SND-3", title: "a body over its limit is refused", run: largeBodyIsRefused},
	{id: "SND-3", title: "bad attributes are refused", run: badAttributesAreRefused},
	{id: "SND-3", title: "texts over their limits are refused", run: badTextsAreRefused},
	{id: "SND-3", title: "texts at their limits are kept", run: textsAtTheLimitAreKept},
	{id: "DUP-1", title: "a dedup key over its limit is refused", needs: []need{needDedup}, run: badDedupKeysAreRefused},
	{id: "ORD-3", title: "a group over its limit is refused", needs: []need{needGroups}, run: badGroupsAreRefused},
	{id: "RCV-1", title: "a receive outside its limits is refused", run: badReceivesAreRefused},
	{id: "VIS-1", title: "a visibility outside its limits is refused", run: badVisibilitiesAreRefused},
	{id: "VIS-3", title: "an extension outside its limits is refused and the lease stays", run: badExtensionsAreRefused},
	{id: "ACK-1", title: "a nack delay outside its limits is refused and the lease stays", run: badNackDelaysAreRefused},
}

const noUTF8 = "\xff\xfe"

// expectBadSend checks that a message is refused and has no effect.
func (e *env) expectBadSend(q driver.Queue, msg driver.Outgoing, code driver.Code, limit any, what string) {
	e.t.Helper()
	before, err := q.Stats(e.ctx())
	e.ok(err, "stats")
	if msg.Body == nil {
		msg.Body = []byte("bad")
	}
	_, err = q.Send(e.ctx(), []driver.Outgoing{msg})
	e.expectInvalid(err, code, fmt.Sprint(limit), "send with "+what)
	e.expectStats(q, before)
}

func badNamesAreRefused(e *env, _ driver.Queue) {
	for what, name := range map[string]string{
		"an empty name":                  "",
		"a name that is too long":        strings.Repeat("n", driver.MaxNameBytes+1),
		"a name that is not UTF-8":       noUTF8,
		"a name with a brace":            "orders{1}",
		"a name with a closing brace":    "orders}",
		"a name with a newline":          "orders\n",
		"a name with a zero byte":        "orders\x00",
		"a name with a control sequence": "\x1b[31morders",
	} {
		limit := ""
		if len(name) > driver.MaxNameBytes {
			limit = fmt.Sprint(driver.MaxNameBytes)
		}
		_, err := e.opener.OpenQueue(e.ctx(), name)
		e.expectInvalid(err, driver.ErrInvalid, limit, "open with "+what)
		if admin, ok := e.opener.(driver.Admin); ok {
			err := admin.ConfigureQueue(e.ctx(), name, driver.Config{})
			e.expectInvalid(err, driver.ErrInvalid, limit, "configure with "+what)
		}
	}
}

func oddNamesWork(e *env, _ driver.Queue) {
	names := []string{
		"a", "A", " a", "a ", "with space", "tenant/user:42", "dots.and-dashes_", "größe ✓ 漢字", "%2F..%00", "../up", "*", "?x=y#z",
		strings.Repeat("n", driver.MaxNameBytes),
	}
	for _, name := range names {
		e.send(e.open(name), name)
	}
	for _, name := range names {
		q := e.open(name)
		e.expectNext(q, brief([]byte(name)))
		e.expectStats(q, driver.Stats{InFlight: 1})
	}
}

func badDelaysAreRefused(e *env, q driver.Queue) {
	longest := q.Traits().MaxDelay // gRPC has milliseconds as floating-point numbers, which tell microseconds apart there
	for _, delay := range []time.Duration{-1, -time.Second, longest + time.Microsecond, longest + time.Minute, 1<<63 - 1} {
		e.expectBadSend(q, driver.Outgoing{Delay: delay}, driver.ErrInvalid, longest, fmt.Sprintf("a delay of %v", delay))
	}
	e.expectNothing(q)
}

func largeBodyIsRefused(e *env, q driver.Queue) {
	const sane = 64 << 20
	largest := q.Traits().MaxBodyBytes
	if largest > sane {
		e.t.Logf("not tried with a body over %d bytes", largest)
		return
	}
	e.expectBadSend(q, driver.Outgoing{Body: make([]byte, largest+1)}, driver.ErrTooLarge, largest, "a body of one byte too many")
	e.expectEmpty(q)
}

func badAttributesAreRefused(e *env, q driver.Queue) {
	traits := q.Traits()
	tooMany := make(map[string]string)
	for i := range traits.MaxAttributes + 1 {
		tooMany[fmt.Sprint(i)] = ""
	}
	longKey := strings.Repeat("k", driver.MaxAttributeKeyBytes+1)
	for _, bad := range []struct {
		what       string
		attributes map[string]string
		limit      any
	}{
		{"too many attributes", tooMany, traits.MaxAttributes},
		{"an attribute key that is too long", map[string]string{longKey: ""}, driver.MaxAttributeKeyBytes},
		{"attributes that are too large", map[string]string{"k": strings.Repeat("v", traits.MaxAttributeBytes)}, traits.MaxAttributeBytes},
		{"an empty attribute key", map[string]string{"": "v", "k": "v"}, ""},
		{"an attribute key that is not UTF-8", map[string]string{noUTF8: "v"}, ""},
		{"an attribute value that is not UTF-8", map[string]string{"k": noUTF8}, ""},
	} {
		e.expectBadSend(q, driver.Outgoing{Attributes: bad.attributes}, driver.ErrInvalid, bad.limit, bad.what)
	}
	e.expectEmpty(q)
}

func badTextsAreRefused(e *env, q driver.Queue) {
	e.expectBadSend(q, driver.Outgoing{ReplyTo: strings.Repeat("r", driver.MaxReplyToBytes+1)},
		driver.ErrInvalid, driver.MaxReplyToBytes, "a reply address that is too long")
	e.expectBadSend(q, driver.Outgoing{CorrelationID: strings.Repeat("c", driver.MaxCorrelationIDBytes+1)},
		driver.ErrInvalid, driver.MaxCorrelationIDBytes, "a correlation id that is too long")
	e.expectBadSend(q, driver.Outgoing{ReplyTo: noUTF8}, driver.ErrInvalid, "", "a reply address that is not UTF-8")
	e.expectBadSend(q, driver.Outgoing{CorrelationID: noUTF8}, driver.ErrInvalid, "", "a correlation id that is not UTF-8")
	e.expectEmpty(q)
}

func textsAtTheLimitAreKept(e *env, q driver.Queue) {
	traits := q.Traits()
	msg := longestTexts(&traits, nil)
	msg.Body = []byte("body")
	id := e.sendOne(q, msg).ID
	e.expectMessage(e.receive(q, 1)[0].Message, msg, id, 1)
}

// longestTexts is a message with these attributes and every text that the queue supports, each
// as long as allowed.
func longestTexts(traits *driver.Traits, attributes map[string]string) driver.Outgoing {
	msg := driver.Outgoing{
		Attributes:    attributes,
		ReplyTo:       strings.Repeat("r", driver.MaxReplyToBytes),
		CorrelationID: strings.Repeat("c", driver.MaxCorrelationIDBytes),
	}
	if traits.Groups {
		msg.Group = strings.Repeat("g", driver.MaxGroupBytes)
	}
	if traits.DedupWindow > 0 {
		msg.DedupKey = strings.Repeat("d", driver.MaxDedupKeyBytes)
	}
	return msg
}

func badDedupKeysAreRefused(e *env, q driver.Queue) {
	e.expectBadSend(q, driver.Outgoing{DedupKey: strings.Repeat("d", driver.MaxDedupKeyBytes+1)},
		driver.ErrInvalid, driver.MaxDedupKeyBytes, "a dedup key that is too long")
	e.expectBadSend(q, driver.Outgoing{DedupKey: noUTF8}, driver.ErrInvalid, "", "a dedup key that is not UTF-8")
	e.expectEmpty(q)
}

func badGroupsAreRefused(e *env, q driver.Queue) {
	e.expectBadSend(q, driver.Outgoing{Group: strings.Repeat("g", driver.MaxGroupBytes+1)},
		driver.ErrInvalid, driver.MaxGroupBytes, "a group that is too long")
	e.expectBadSend(q, driver.Outgoing{Group: noUTF8}, driver.ErrInvalid, "", "a group that is not UTF-8")
	e.expectEmpty(q)
}

// expectBadReceive checks that a request is refused at once and leases nothing.
func (e *env) expectBadReceive(q driver.Queue, req driver.ReceiveRequest, limit any, what string) {
	e.t.Helper()
	start := time.Now()
	_, err := q.Receive(e.ctx(), req)
	e.expectInvalid(err, driver.ErrInvalid, fmt.Sprint(limit), "receive with "+what)
	e.expectPrompt(start, "the refusal of a receive with "+what)
	e.expectStats(q, driver.Stats{Ready: 1})
}

func badReceivesAreRefused(e *env, q driver.Queue) {
	e.send(q, "a")
	e.expectBadReceive(q, driver.ReceiveRequest{Max: 0, Visibility: e.hold}, 1, "Max 0")
	e.expectBadReceive(q, driver.ReceiveRequest{Max: -1, Visibility: e.hold}, 1, "Max -1")
	e.expectBadReceive(q, driver.ReceiveRequest{Max: 1, MaxBytes: -1, Visibility: e.hold}, 0, "MaxBytes -1")
	e.expectBadReceive(q, driver.ReceiveRequest{Max: 1, Wait: -1, Visibility: e.hold}, "", "a negative wait")
	if longest := q.Traits().MaxWait; longest > 0 {
		e.expectBadReceive(q, driver.ReceiveRequest{Max: 1, Wait: longest + 1, Visibility: e.hold}, longest, "a wait that is too long")
	}
	e.expectNext(q, "a")
}

func badVisibilitiesAreRefused(e *env, q driver.Queue) {
	longest := q.Traits().MaxVisibility
	e.send(q, "a")
	for _, visibility := range []time.Duration{-1, -time.Hour, longest + 1, 1<<63 - 1} {
		e.expectBadReceive(q, driver.ReceiveRequest{Max: 1, Visibility: visibility}, longest, fmt.Sprintf("a visibility of %v", visibility))
	}
	e.expectNext(q, "a")
}

func badExtensionsAreRefused(e *env, q driver.Queue) {
	longest := q.Traits().MaxVisibility
	e.send(q, "a")
	held := e.receive(q, 1)[0]
	for _, visibility := range []time.Duration{-1, longest + 1, 1<<63 - 1} {
		err := tryExtend(e, q, held, visibility)
		e.expectInvalid(err, driver.ErrInvalid, fmt.Sprint(longest), fmt.Sprintf("extend by %v", visibility))
	}
	e.expectStats(q, driver.Stats{InFlight: 1})
	e.ack(q, held)
}

func badNackDelaysAreRefused(e *env, q driver.Queue) {
	longest := q.Traits().MaxVisibility
	e.send(q, "a")
	held := e.receive(q, 1)[0]
	for _, delay := range []time.Duration{-1, longest + 1, 1<<63 - 1} {
		err := tryNack(e, q, held, delay, "bad")
		e.expectInvalid(err, driver.ErrInvalid, fmt.Sprint(longest), fmt.Sprintf("nack with a delay of %v", delay))
	}
	e.expectStats(q, driver.Stats{InFlight: 1})
	e.ack(q, held)
}
