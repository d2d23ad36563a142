package drivertest

import (
	"fmt"
	"strings"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// groupLimitCases are the cases about limits by group that stories cannot express. The others are in
// stories/limit.txt.
var groupLimitCases = []testCase{
	{
		id: "FLOW-6", title: "a rate gives tokens back, and a waiting receive gets the message then",
		config: limited(func(e *env) string { return fmt.Sprintf("rate=%g,burst=1", 1/e.tick().Seconds()) }),
		needs:  []need{needGroupLimits}, run: tokensComeBack,
	},
	{
		id: "FLOW-6", title: "a waiting receive gets a message when another is acked",
		config: limited(func(*env) string { return "in-flight=1" }), needs: []need{needGroupLimits}, run: ackWakesLimited,
	},
	{
		id: "FLOW-6", title: "limits and throttles that cannot be are refused",
		config: limited(func(*env) string { return "in-flight=1" }), needs: []need{needGroupLimits, needAdmin}, run: badLimitsAreRefused,
	},
	{
		id: "FLOW-6", title: "many groups have their limits each", config: limited(func(*env) string { return "in-flight=2" }),
		needs: []need{needGroupLimits}, run: manyGroupsAreLimited,
	},
}

func limited(limits func(e *env) string) func(e *env) driver.Config {
	return func(e *env) driver.Config { return driver.Config{FairGroups: true, GroupLimits: limits(e)} }
}

func tokensComeBack(e *env, q driver.Queue) {
	for _, body := range []string{"a", "b", "c"} {
		e.sendOne(q, driver.Outgoing{Body: []byte(body), Group: "g"})
	}
	start := time.Now()
	for i, body := range []string{"a", "b", "c"} {
		got, err := q.Receive(e.ctx(), driver.ReceiveRequest{Max: 10, Visibility: e.hold, Wait: e.hold})
		e.ok(err, "receive")
		if len(got) != 1 || string(got[0].Body) != body {
			e.failf("receive %d: got %q, want %q", i, bodies(got), body)
		}
		if due := start.Add(time.Duration(i) * e.unit); i > 0 && time.Until(due) > e.slack {
			e.failf("%q was delivered %v before its token was back", body, time.Until(due))
		}
	}
}

func ackWakesLimited(e *env, q driver.Queue) {
	for _, body := range []string{"a", "b"} {
		e.sendOne(q, driver.Outgoing{Body: []byte(body), Group: "g"})
	}
	held := e.expectNext(q, "a")
	got := make(chan []driver.Delivery, 1)
	go func() {
		deliveries, _ := q.Receive(e.ctx(), driver.ReceiveRequest{Max: 1, Visibility: e.hold, Wait: e.hold})
		got <- deliveries
	}()
	e.nap(time.Now().Add(e.tick() / 4))
	e.ack(q, held...)
	if deliveries := <-got; len(deliveries) != 1 || string(deliveries[0].Body) != "b" {
		e.failf("got %q, want b", bodies(deliveries))
	}
}

func badLimitsAreRefused(e *env, q driver.Queue) {
	admin := e.opener.(driver.Admin)
	for _, limits := range []string{
		"in-flight=0", "in-flight=x", "rate=0", "rate=-1", "rate=1000001", "rate=NaN", "burst=2", "rate=1,rate=2", "speed=1", "none,rate=1",
		"rate=1;rate=2", "g: rate=1; g: rate=2", ": rate=1", "g:", `"g" rate=1`, "rate=0.0001,burst=100000", strings.Repeat(" ", 1<<17),
	} {
		err := admin.ConfigureQueue(e.ctx(), "limited", driver.Config{FairGroups: true, GroupLimits: limits})
		if len(limits) > 50 {
			limits = limits[:50] + "…"
		}
		e.expectCode(err, driver.ErrInvalid, "configure the limits %q", limits)
	}
	err := admin.ConfigureQueue(e.ctx(), "limited", driver.Config{GroupLimits: "rate=1"})
	e.expectCode(err, driver.ErrInvalid, "configure limits without groups that are fair or strict")
	for _, bad := range []struct {
		group string
		wait  time.Duration
	}{{"", time.Second}, {"g", -time.Second}, {"g", driver.MaxThrottle + time.Second}, {strings.Repeat("g", driver.MaxGroupBytes+1), time.Second}} {
		e.expectCode(q.Throttle(e.ctx(), bad.group, bad.wait), driver.ErrInvalid, "throttle a group of %d bytes for %v", len(bad.group), bad.wait)
	}
}

func manyGroupsAreLimited(e *env, q driver.Queue) {
	const groups, each = 30, 5
	for i := range each {
		for g := range groups {
			e.sendOne(q, driver.Outgoing{Body: fmt.Appendf(nil, "%d-%d", g, i), Group: fmt.Sprint("g", g)})
		}
	}
	out := make(map[string]int)
	delivered := 0
	var held []driver.Delivery
	for delivered < groups*each {
		got, err := q.Receive(e.ctx(), driver.ReceiveRequest{Max: 10, Visibility: e.hold})
		e.ok(err, "receive")
		for _, d := range got {
			if out[d.Group]++; out[d.Group] > 2 {
				e.failf("the group %s has %d messages in flight, at most 2 are allowed", d.Group, out[d.Group])
			}
		}
		delivered += len(got)
		held = append(held, got...)
		if len(got) == 0 {
			if len(held) < min(2*groups, groups*each-delivered) {
				e.failf("nothing is delivered while %d are in flight and %d of %d were delivered", len(held), delivered, groups*each)
			}
			if len(held) == 0 {
				e.failf("%d of %d messages were delivered", delivered, groups*each)
			}
			e.ack(q, held...)
			held, out = nil, make(map[string]int)
		}
	}
}
