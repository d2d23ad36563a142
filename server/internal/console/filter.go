package console

import (
	"bytes"
	"context"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/server/internal/broker"
	"github.com/mailboxmq/mailbox/server/internal/wireerr"
)

const (
	// The limits of messages in a list: the default, and those that people can choose.
	messagesPerPage = 50
	mostMessages    = 500
	// leastSearched messages in each state are looked at in any case, firstSearched at most, and
	// mostSearched when people ask to look further: about 500 bytes are in memory for each.
	leastSearched, firstSearched, mostSearched = 500, 5_000, 100_000
	// furtherTime is how long a page looks when people ask to look further.
	furtherTime = 3 * time.Second
)

// A filter is what people search messages by.
type filter struct {
	id         string
	states     []driver.State // none means all
	text       []byte
	attributes map[string]string
	group      string
	priority   int // -1 means any
	older      time.Duration
	reason     driver.Reason
	// show is how many messages are shown, and look how many in each state are looked at.
	show, look int
}

// parseFilter reads the parameters of a list of messages. The problem is one that the person can
// correct; empty if there is none.
func parseFilter(values url.Values) (f filter, problem string) {
	f = filter{
		id: strings.TrimSpace(values.Get("id")), text: []byte(values.Get("text")), group: values.Get("group"),
		priority: -1, reason: driver.Reason(values.Get("reason")), show: messagesPerPage, look: firstSearched,
	}
	if state := values.Get("state"); state != "" {
		i := slices.IndexFunc(states, func(s driver.State) bool { return stateClass(s) == state })
		if i < 0 {
			return f, "State: want ready, delayed, in_flight or dead."
		}
		f.states = states[i : i+1]
	}
	if attribute := values.Get("attribute"); attribute != "" {
		key, value, ok := strings.Cut(attribute, "=")
		if !ok {
			return f, "Attribute: want NAME=VALUE."
		}
		f.attributes = map[string]string{key: value}
	}
	if text := values.Get("priority"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 || n > driver.MaxPriority {
			return f, "Priority: want a number from 0 to " + strconv.Itoa(driver.MaxPriority) + "."
		}
		f.priority = n
	}
	if text := values.Get("older"); text != "" {
		older, err := time.ParseDuration(text)
		if err != nil || older < 0 {
			return f, "Older than: want a duration like 90s, 15m or 24h."
		}
		f.older = older
	}
	if f.reason != "" && !f.reason.Valid() {
		return f, "Reason: want max_attempts, fatal, parse, integrity, expired or operator."
	}
	if n, err := strconv.Atoi(values.Get("limit")); err == nil && n > 0 {
		f.show = min(n, mostMessages)
	}
	if n, err := strconv.Atoi(values.Get("look")); err == nil && n > firstSearched {
		f.look = min(n, mostSearched)
	}
	return f, ""
}

// selective reports whether messages have to be looked at to know whether they match.
func (f *filter) selective() bool {
	return len(f.text) > 0 || len(f.attributes) > 0 || f.group != "" || f.priority >= 0 || f.older > 0
}

// wants reports whether a message matches.
func (f *filter) wants(m *broker.Peeked, now time.Time) bool {
	for key, value := range f.attributes {
		if got, ok := m.Attributes[key]; !ok || got != value {
			return false
		}
	}
	return (f.priority < 0 || m.Priority == f.priority) && (f.group == "" || m.Group == f.group) &&
		(f.older == 0 || now.Sub(m.EnqueuedAt) >= f.older) && bytes.Contains(m.Body, f.text)
}

// A found list is the result of a search.
type found struct {
	messages []broker.Peeked
	// looked is how many messages were looked at, by state.
	looked map[driver.State]int
	// cut: not all messages were looked at; full: more may match than are shown.
	cut, full bool
}

// search finds messages. It leases nothing.
func (v *view) search(queue string, f *filter, now time.Time) (found, error) {
	all := f.states
	if len(all) == 0 {
		all = states
	}
	if f.reason != "" {
		all = slices.DeleteFunc(slices.Clone(all), func(s driver.State) bool { return s != driver.StateDead })
	}
	r := found{looked: make(map[driver.State]int)}
	if f.id != "" { // the backend finds it
		err := v.searchID(queue, f, all, now, &r)
		return r, err
	}
	limit := v.budget(leastSearched, f.look)
	if f.look > firstSearched {
		limit.end = time.Now().Add(max(furtherTime, v.handler.options.LookTime))
	}
	for _, state := range all {
		if err := v.searchIn(state, queue, f, now, limit, &r); err != nil || r.full {
			return r, err
		}
	}
	return r, nil
}

// searchIn finds messages in one state.
func (v *view) searchIn(state driver.State, queue string, f *filter, now time.Time, limit budget, r *found) error {
	query := driver.Query{States: []driver.State{state}, Reason: f.reason, Limit: f.show - len(r.messages) + 1}
	if f.selective() {
		query.Limit = f.look + 1
	}
	ctx, cancel := context.WithCancel(v.ctx())
	defer cancel()
	looked := 0
	for m, err := range v.caller.Search(ctx, queue, query, func(m *broker.Peeked) bool {
		if f.selective() && limit.spent(looked) {
			r.cut = true
			cancel()
			return false
		}
		looked++
		return f.wants(m, now)
	}) {
		if r.cut {
			break
		}
		if err != nil {
			return err
		}
		if len(r.messages) == f.show {
			r.full = true
			break
		}
		r.messages = append(r.messages, m)
	}
	r.looked[state] = looked
	return nil
}

// lookTimeout is the context of a look that the backend makes in one go, for a page that people asked
// to look further or not.
func (v *view) lookTimeout(further bool) (context.Context, context.CancelFunc) {
	limit := v.handler.options.LookTime
	if further {
		limit = max(limit, furtherTime)
	}
	return context.WithTimeout(v.ctx(), limit)
}

// searchID finds the message with the id of a filter, within the time of a page.
func (v *view) searchID(queue string, f *filter, all []driver.State, now time.Time, r *found) error {
	ctx, cancel := v.lookTimeout(f.look > firstSearched)
	defer cancel()
	query := driver.Query{ID: f.id, States: all, Reason: f.reason, Limit: 1}
	for m, err := range v.caller.Search(ctx, queue, query, func(m *broker.Peeked) bool { return f.wants(m, now) }) {
		switch {
		case err != nil && ctx.Err() != nil && v.ctx().Err() == nil:
			r.cut = true
			return nil
		case err != nil:
			return err
		}
		r.messages = append(r.messages, m)
	}
	return nil
}

// messages lists what a filter finds.
func (v *view) messages(queue string, f *filter, stats *driver.Stats, counted bool) g.Node {
	now := time.Now()
	r, err := v.search(queue, f, now)
	if err != nil {
		return failed(wireerr.Of(err).Message())
	}
	if len(r.messages) == 0 {
		if counted && stats.Waiting()+stats.Dead == 0 {
			return empty("The queue is empty. Messages appear here as they are sent.")
		}
		return g.Group{empty("No message matches."), v.extent(f, &r, stats, counted)}
	}
	var rows []g.Node
	for i := range r.messages {
		rows = append(rows, v.messageRow(&r.messages[i], now))
	}
	return g.Group{table("Messages", []string{"Message", "State", "Sent", "Due", "#Deliveries", "Body", "Last error"}, rows), v.extent(f, &r, stats, counted)}
}

// extent says how far a search looked, with a link to look further.
func (v *view) extent(f *filter, r *found, stats *driver.Stats, counted bool) g.Node {
	note := "All that match: " + count(len(r.messages), "message") + "."
	switch {
	case r.full:
		note = "The first " + count(len(r.messages), "message") + " that match. Narrow the filter to find others."
	case r.cut && f.id != "":
		note = "The search took too long, and was stopped before it came to the end of the queue."
	case r.cut:
		note = count(len(r.messages), "message") + " found so far, in " + r.words(stats, counted) + "."
	}
	var further g.Node
	if r.cut && f.look < mostSearched {
		values := make(url.Values)
		for name := range v.values {
			values.Set(name, v.get(name))
		}
		values.Set("look", strconv.Itoa(min(10*f.look, mostSearched)))
		further = h.A(h.Href("queue?"+values.Encode()), g.Text("Look further →"))
	}
	return h.P(h.Class("quiet"), g.Text(note+" "), further)
}

// words says how many messages were looked at: the first 5,000 of 900,000 ready, 12 dead.
func (r *found) words(stats *driver.Stats, counted bool) string {
	var parts []string
	for _, state := range states {
		n := r.looked[state]
		switch {
		case n == 0:
		case counted && n < countOf(stats, state):
			parts = append(parts, "the first "+number(n)+" of "+number(countOf(stats, state))+" "+string(state))
		default:
			parts = append(parts, number(n)+" "+string(state))
		}
	}
	return strings.Join(parts, ", ")
}
