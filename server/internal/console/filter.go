package console

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/server/internal/broker"
	h "github.com/mailboxmq/mailbox/server/internal/console/markup"
	"github.com/mailboxmq/mailbox/server/internal/wireerr"
)

const (
	// The limits of messages in a list: the default, and those that people can choose.
	messagesPerPage = 50
	mostMessages    = 500
	// leastSearched messages in each state are looked at in any case, firstSearched at most, and
	// mostSearched when people go on.
	leastSearched, firstSearched, mostSearched = 500, 5_000, 100_000
	// furtherTime is how long a page looks when people go on.
	furtherTime = 3 * time.Second
)

// parseFilter reads the parameters of a list of messages. The problem is one that the person can
// correct; empty if there is none.
func parseFilter(values url.Values) (s broker.Search, problem string) {
	s = broker.Search{
		Query: driver.Query{ID: strings.TrimSpace(values.Get("id")), Reason: driver.Reason(values.Get("reason"))},
		Text:  values.Get("text"), Group: values.Get("group"), Cursor: values.Get("cursor"),
	}
	if state := values.Get("state"); state != "" {
		i := slices.IndexFunc(states, func(s driver.State) bool { return stateClass(s) == state })
		if i < 0 {
			return s, "State: want ready, delayed, in_flight or dead."
		}
		s.Query.States = states[i : i+1]
	}
	if attribute := values.Get("attribute"); attribute != "" {
		key, value, ok := strings.Cut(attribute, "=")
		if !ok {
			return s, "Attribute: want NAME=VALUE."
		}
		s.Query.Attributes = map[string]string{key: value}
	}
	if text := values.Get("priority"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 || n > driver.MaxPriority {
			return s, "Priority: want a number from 0 to " + strconv.Itoa(driver.MaxPriority) + "."
		}
		s.Priority = &n
	}
	if text := values.Get("older"); text != "" {
		older, err := time.ParseDuration(text)
		if err != nil || older < 0 {
			return s, "Older than: want a duration like 90s, 15m or 24h."
		}
		s.Query.OlderThan = older
	}
	if s.Query.Reason != "" && !s.Query.Reason.Valid() {
		return s, "Reason: want max_attempts, fatal, parse, integrity, expired or operator."
	}
	s.Query.Limit = messageLimit(values.Get("limit"))
	return s, ""
}

// messageLimit reads how many messages a page shows.
func messageLimit(text string) int {
	if n, err := strconv.Atoi(text); err == nil && n > 0 {
		return min(n, mostMessages)
	}
	return messagesPerPage
}

// newest asks for the newest messages first.
const newest = "newest"

// oneState prepares a filter for the newest messages, which are those of one state. The problem is one that
// the person can correct.
func oneState(s *broker.Search) (problem string) {
	switch {
	case len(s.Query.States) == 0 && s.Query.Reason != "":
		s.Query.States = []driver.State{driver.StateDead}
	case len(s.Query.States) == 0:
		s.Query.States = []driver.State{driver.StateReady}
	case s.Query.States[0] == driver.StateDelayed || s.Query.States[0] == driver.StateInFlight:
		return "Order: the newest come first among ready and among dead messages only."
	}
	return ""
}

// newestFirst reports whether a person asked for the newest messages first, which makes no difference to one message.
func (v *view) newestFirst(s *broker.Search) bool {
	return v.get("order") == newest && s.Query.ID == ""
}

// reasons are the options of a choice of reasons.
func reasons() []string {
	options := []string{"", "any"}
	for _, r := range []driver.Reason{driver.ReasonMaxDeliveries, driver.ReasonFatal, driver.ReasonParse, driver.ReasonIntegrity, driver.ReasonExpired, driver.ReasonOperator} {
		options = append(options, string(r), string(r))
	}
	return options
}

// search finds messages within the time of a page, which is longer on the pages that people ask to go on
// with. It leases nothing.
func (v *view) search(queue string, s *broker.Search) (found []broker.Peeked, err error) {
	s.Least, s.Most, s.Until = leastSearched, firstSearched, v.lookEnd(s.Cursor != "")
	if v.newestFirst(s) {
		return v.caller.Newest(v.ctx(), queue, s)
	}
	if s.Cursor != "" {
		s.Most = mostSearched
	}
	for m, err := range v.caller.Search(v.ctx(), queue, s) {
		if err != nil {
			return found, err
		}
		found = append(found, m)
	}
	return found, nil
}

// lookEnd is when a look at messages ends, for a page that people asked to look further or not.
func (v *view) lookEnd(further bool) time.Time {
	limit := v.handler.options.LookTime
	if further {
		limit = max(limit, furtherTime)
	}
	return time.Now().Add(limit)
}

// messages lists what a search finds; stats are those of the queue, or nil.
func (v *view) messages(queue string, s *broker.Search, stats *driver.Stats) h.Node {
	now, begun := time.Now(), s.Cursor != ""
	found, err := v.search(queue, s)
	if err != nil {
		return failed(wireerr.Of(err).Message())
	}
	extent := v.extent(s, len(found), begun, stats)
	if len(found) == 0 {
		if stats != nil && stats.Waiting()+stats.Dead == 0 && !begun {
			return empty("The queue is empty. Messages appear here as they are sent.")
		}
		return h.Group{empty("No message matches."), extent}
	}
	var rows []h.Node
	for i := range found {
		rows = append(rows, v.messageRow(&found[i], now))
	}
	return h.Group{table("Messages", []string{"Message", "State", "Sent", "Due", "#Deliveries", "Body", "Last error"}, rows), extent}
}

// extent says how far a search looked that found this many messages, with a link to go on. begun says
// that it was not the first of its chain.
func (v *view) extent(s *broker.Search, found int, begun bool, stats *driver.Stats) h.Node {
	note := "All that match: " + count(found, "message") + "."
	switch {
	case v.newestFirst(s):
		return h.P(h.Class("quiet"), h.Text(newestExtent(s, found)))
	case s.Cut && s.Query.ID != "":
		note = "The search took too long, and was stopped before it came to the end of the queue."
	case begun:
		note = count(found, "message") + " found, in the next " + looked(s, nil) + "."
	case s.Cut:
		note = count(found, "message") + " found so far, in " + looked(s, stats) + "."
	case s.Cursor != "":
		note = "The first " + count(found, "message") + " that match."
	}
	var further h.Node
	if s.Cursor != "" {
		values := make(url.Values)
		for name := range v.values {
			values.Set(name, v.get(name))
		}
		values.Set("cursor", s.Cursor)
		further = h.A(h.Href("queue?"+values.Encode()+"#"+messagesID), h.Text("Go on →"))
	}
	return h.P(h.Class("quiet"), h.Text(note+" "), further)
}

// newestExtent says how far a search for the newest messages looked.
func newestExtent(s *broker.Search, found int) string {
	state := s.Query.States[0]
	if s.Cut {
		return count(found, "message") + " found so far, in the newest " + count(s.Looked[state], string(state)+" message") + "."
	}
	return "The newest that match: " + count(found, string(state)+" message") + "."
}

// looked says how many messages a search looked at: the first 5,000 of 900,000 ready, 12 dead; without
// the totals if stats is nil.
func looked(s *broker.Search, stats *driver.Stats) string {
	var parts []string
	for _, state := range states {
		n := s.Looked[state]
		switch {
		case n == 0:
		case stats != nil && n < countOf(stats, state):
			parts = append(parts, "the first "+number(n)+" of "+number(countOf(stats, state))+" "+string(state))
		default:
			parts = append(parts, number(n)+" "+string(state))
		}
	}
	if parts == nil {
		return "0"
	}
	return strings.Join(parts, ", ")
}
