package console

import (
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/server/internal/broker"
	h "github.com/mailboxmq/mailbox/server/internal/console/markup"
)

// A selection is the dead letters that a form names: one, or those that conditions select.
type selection struct {
	id string
	// conditions select dead letters if id is empty. Until is the latest death among them; zero if that does not count.
	conditions broker.Selection
	count      int
	words      string
	back       string
	// cut: there are more than were counted.
	cut bool
	// at is when they were selected: OlderThan counts from then.
	at time.Time
}

// deadFilterNames are the parameters of a filter of dead letters, besides the cause.
var deadFilterNames = []string{"reason", "text", "attribute", "group", "priority", "older"}

// deadFilter reads the parameters of a filter of dead letters. The problem is one that the person can
// correct; empty if there is none.
func (v *view) deadFilter() (filter broker.Search, problem string) {
	filter, problem = parseFilter(v.values)
	return broker.Search{
		Query: driver.Query{Reason: filter.Query.Reason, Attributes: filter.Query.Attributes, OlderThan: filter.Query.OlderThan},
		Text:  filter.Text, Group: filter.Group, Priority: filter.Priority, Cause: v.get("cause"),
	}, problem
}

// conditions are what a job selects by a filter.
func conditions(filter *broker.Search) broker.Selection {
	s := broker.Selection{Query: filter.Query, Group: filter.Group, Priority: filter.Priority, Cause: filter.Cause}
	if filter.Text != "" {
		s.Text = []byte(filter.Text)
	}
	return s
}

// filtered returns the parameters of the filter that the page has, for links.
func (v *view) filtered() (parameters []string) {
	for _, name := range deadFilterNames {
		if value := v.get(name); value != "" {
			parameters = append(parameters, name, value)
		}
	}
	return parameters
}

// parameters returns the conditions of a selection as the parameters of a filter, if it has no others.
func parameters(s *broker.Selection) (all []string, ok bool) {
	all = []string{"cause", s.Cause, "reason", string(s.Reason), "text", string(s.Text), "group", s.Group}
	for key, value := range s.Attributes {
		all = append(all, "attribute", key+"="+value)
	}
	if s.Priority != nil {
		all = append(all, "priority", strconv.Itoa(*s.Priority))
	}
	if s.OlderThan > 0 {
		all = append(all, "older", s.OlderThan.String())
	}
	return all, s.ID == "" && s.Limit == 0 && len(s.Attributes) <= 1
}

// same reports whether two selections have the same conditions.
func same(a, b broker.Selection) bool {
	a.Until, b.Until = time.Time{}, time.Time{}
	return reflect.DeepEqual(a, b)
}

// deadFilterForm is the form of the filter of dead letters.
func (v *view) deadFilterForm(queue string) h.Node {
	return h.Form(h.Class("filter"), h.Method("get"), h.Action("dead"), h.Role("search"),
		hiddenField("queue", queue), hiddenField("tenant", v.tenant), hiddenField("cause", v.get("cause")),
		choice("Reason", "reason", v.get("reason"), reasons()...),
		field("Body contains", "text", v.get("text"), h.Data("search", "")),
		v.moreConditions(nil),
		h.Div(h.Class("submit"), h.Button(h.Type("submit"), h.Text("Filter")),
			h.If(len(v.filtered()) > 0, h.A(h.Href(link("dead", "queue", queue, "tenant", v.tenant, "cause", v.get("cause"))), h.Text("Clear")))),
	)
}

// selected finds the dead letters that a form names. It is the dry run of a change. A form that was
// confirmed has the latest death that the person has seen: later dead letters are not selected.
func (v *view) selected() (selection, error) {
	queue := v.get("queue")
	if id := v.get("id"); id != "" {
		return selection{id: id, count: 1, words: "of " + queue + ", message " + id, back: link("message", "queue", queue, "id", id)}, nil
	}
	filter, problem := v.deadFilter()
	if problem != "" {
		return selection{}, invalid("filter", problem)
	}
	s := selection{conditions: conditions(&filter), at: time.Now(), words: "of " + queue}
	filtered := v.filtered()
	s.back = link("dead", append([]string{"queue", queue, "cause", filter.Cause}, filtered...)...)
	if filter.Cause != "" {
		s.words += " with one cause"
	}
	switch done, err := v.selectedBefore(&s); {
	case err != nil || done:
		return s, err
	}
	found, err := v.survey(queue, &filter)
	if err != nil {
		return s, err
	}
	s.count = found.Selected
	for i := range found.causes {
		c := &found.causes[i]
		if filter.Cause != "" {
			s.words = "of " + queue + " with the cause: " + causeName(c)
		}
		if c.Last.After(s.conditions.Until) {
			s.conditions.Until = c.Last
		}
	}
	if s.count == 0 && !found.Cut && (filter.Cause != "" || len(filtered) > 0) {
		return s, &driver.Error{Code: driver.ErrNotFound, Op: "select", Queue: queue, Detail: "no dead letter matches any more"}
	}
	if len(filtered) > 0 {
		s.words += ", where " + filterWords(filtered)
	}
	if s.cut = found.Cut; s.cut { // those behind count too
		s.conditions.Until = time.Now()
	}
	return s, nil
}

// selectedBefore completes a selection that was counted by a job, or was confirmed. It reports whether it was.
func (v *view) selectedBefore(s *selection) (done bool, err error) {
	if id := v.get("job"); id != "" {
		j, err := v.caller.Job(v.ctx(), id)
		if err == nil && (j.Queue != v.get("queue") || j.Action != broker.JobCount || j.State != broker.JobDone || !same(j.Selection, s.conditions)) {
			err = invalid("job", "has not counted these dead letters")
		}
		s.count, s.conditions.Until, s.at = j.Done, j.Selection.Until, j.Started
		if filtered := v.filtered(); len(filtered) > 0 {
			s.words += ", where " + filterWords(filtered)
		}
		return true, err
	}
	until, err := time.Parse(time.RFC3339Nano, v.get("until"))
	if err != nil {
		return false, nil // it was not confirmed
	}
	s.conditions.Until, s.cut = until, v.get("cut") != ""
	if at, err := time.Parse(time.RFC3339Nano, v.get("at")); err == nil {
		s.at = at
	}
	return true, nil
}

// filterWords says what a filter asks for: reason is parse and group is a.
func filterWords(parameters []string) string {
	var words []string
	for i := 0; i+1 < len(parameters); i += 2 {
		name := map[string]string{"text": "the body contains", "older": "the age is at least"}[parameters[i]]
		if name == "" {
			name = parameters[i] + " is"
		}
		words = append(words, name+" "+shorten(parameters[i+1], 80))
	}
	return strings.Join(words, " and ")
}

// confirmation carries what the person has seen of a selection.
func (s *selection) confirmation() h.Node {
	if s.conditions.Until.IsZero() {
		return nil
	}
	return h.Group{
		hiddenField("until", s.conditions.Until.Format(time.RFC3339Nano)), h.If(s.cut, hiddenField("cut", "yes")),
		h.If(s.conditions.OlderThan > 0, hiddenField("at", s.at.UTC().Format(time.RFC3339Nano))),
	}
}

// forJob returns the conditions for a job that starts now: what was not old enough when the selection was made is not selected.
func (s *selection) forJob() broker.Selection {
	conditions := s.conditions
	if conditions.OlderThan > 0 {
		conditions.OlderThan += max(0, time.Since(s.at))
	}
	return conditions
}

// number says how many dead letters are selected.
func (s *selection) number() string {
	if s.cut {
		return "at least " + count(s.count, "dead letter")
	}
	return count(s.count, "dead letter")
}
