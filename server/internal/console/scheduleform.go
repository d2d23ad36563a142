package console

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/schedule"
	h "github.com/mailboxmq/mailbox/server/internal/console/markup"
	"github.com/mailboxmq/mailbox/server/internal/wireerr"
)

// The fields of the form of a schedule, and the ways in which it writes a body.
const (
	asText, asBase64 = "text", "base64"
	shownDueTimes    = 5
)

var scheduleFields = []string{"cron", "every", "zone", "catch_up", "encoding", "body", "attributes"}

// fieldOf are the fields of the form by those of a schedule.Schedule.
var fieldOf = map[string]string{
	"Queue": "queue", "Name": "schedule", "Cron": "cron", "Every": "every", "Zone": "zone", "Body": "body", "Attributes": "attributes",
}

// scheduleEditor is the page that makes a schedule, or changes one.
func scheduleEditor(v *view, p *page) error {
	queue, name := v.get("queue"), v.get("schedule")
	if !v.mayMakeSchedules(queue) {
		return v.notAllowed(capability.OpAdmin)
	}
	if queue != "" && name != "" {
		s, err := v.caller.Schedule(v.ctx(), queue, name)
		if err != nil && !errors.Is(err, driver.ErrNotFound) {
			return err
		}
		if err == nil {
			v.fill(&s.Schedule)
		}
	}
	return scheduleForm(v, p, nil)
}

// mayMakeSchedules reports whether the session may store schedules with a queue, or with any if it is empty.
func (v *view) mayMakeSchedules(queue string) bool {
	return v.mayChange(capability.OpAdmin, queue) && v.mayChange(capability.OpSend, queue)
}

// fill sets the fields of the form to those of a schedule.
func (v *view) fill(s *schedule.Schedule) {
	v.values.Set("known", "yes")
	v.values.Set("cron", s.Cron)
	v.values.Set("zone", s.Zone)
	v.values.Set("catch_up", string(s.CatchUp))
	if s.Every > 0 {
		v.values.Set("every", s.Every.String())
	}
	v.values.Set("encoding", asText)
	v.values.Set("body", string(s.Body))
	if !readable(s.Body) || strings.Contains(string(s.Body), "\r") { // a browser would change it
		v.values.Set("encoding", asBase64)
		v.values.Set("body", base64.StdEncoding.EncodeToString(s.Body))
	}
	v.values.Set("attributes", attributeLines(s.Attributes))
}

// attributeLines writes attributes as parseAttributes reads them: a line for each or, if that is not possible, JSON.
func attributeLines(all map[string]string) string {
	var lines strings.Builder
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if strings.ContainsAny(key+all[key], "\r\n") || strings.Contains(key, "=") || strings.HasPrefix(key, "{") || strings.TrimSpace(key+all[key]) != key+all[key] {
			text, _ := json.MarshalIndent(all, "", "  ") // strings can be encoded
			return string(text)
		}
		lines.WriteString(key + "=" + all[key] + "\n")
	}
	return lines.String()
}

// parseAttributes reads attributes: a line NAME=VALUE for each, or a JSON object.
func parseAttributes(text string) (map[string]string, error) {
	var all map[string]string
	if strings.HasPrefix(strings.TrimSpace(text), "{") {
		if err := json.Unmarshal([]byte(text), &all); err != nil {
			return nil, invalid("Attributes", "want an object of texts, or lines like NAME=VALUE")
		}
		return all, nil
	}
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		if _, twice := all[key]; !ok || key == "" || twice {
			return nil, invalid("Attributes", "want lines like NAME=VALUE, each name once; got "+shorten(line, 40))
		}
		if all == nil {
			all = make(map[string]string)
		}
		all[key] = value
	}
	return all, nil
}

// scheduleForm shows the form with what was typed, and at its field what is wrong with it.
func scheduleForm(v *view, p *page, problem error) error {
	known := v.get("known") != ""
	p.title = "New schedule"
	if known {
		p.title = "Change schedule " + v.get("schedule")
	}
	at, message := "", ""
	if problem != nil {
		message = wireerr.Of(problem).Message()
		if e, ok := errors.AsType[*driver.Error](problem); ok {
			at, message = fieldOf[e.Field], cmp.Or(e.Detail, message)
		}
	}
	// input is a field, with its problem if it has one.
	input := func(label, name string, attributes ...h.Node) h.Node {
		if known && (name == "queue" || name == "schedule") {
			attributes = append(attributes, h.ReadOnly())
		}
		return fieldWithHelp(label, name, problemAt(at == name, message), func(more h.Node) h.Node {
			return h.Input(h.ID("f-"+name), h.Name(name), h.Value(v.get(name)), h.AutoComplete("off"), h.Attr("spellcheck", "false"), h.Group(attributes), more)
		})
	}
	area := func(label, name, rows string) h.Node {
		return fieldWithHelp(label, name, problemAt(at == name, message), func(more h.Node) h.Node {
			return h.Textarea(h.ID("f-"+name), h.Name(name), h.Rows(rows), h.Attr("spellcheck", "false"), more, h.Text("\n"+v.get(name))) // a browser drops the first line break
		})
	}
	p.add(h.P(h.Class("crumbs"), h.A(h.Href("schedules"), h.Text("Schedules"))))
	p.heading(h.Text(p.title))
	if problem != nil {
		text := "Nothing was changed: correct the field that is marked."
		if at == "" {
			text = "Nothing was changed: " + wireerr.Of(problem).Message()
		}
		p.add(failed(text))
	}
	p.add(h.Form(h.Class("panel sheet"), h.Method("post"), h.Action("confirm"), v.csrfField(), hiddenField("do", "put-schedule"), hiddenField("known", v.get("known")),
		h.Div(h.Class("filter"), input("Queue", "queue", h.Required()), input("Name", "schedule", h.Required())),
		h.FieldSet(h.Class("checks"), h.Legend(h.Text("When: a cron expression or an interval")),
			input("Cron: minute hour day month weekday", "cron", h.Placeholder("30 6 * * MON-FRI")), input("Time zone of the cron expression; empty is UTC", "zone", h.Placeholder("Europe/Berlin")),
			input("Interval", "every", h.Placeholder("15m"), h.Class("short"))),
		choice("Due times that were missed", "catch_up", v.get("catch_up"), string(schedule.CatchUpOne), "one: send one message for the latest", string(schedule.CatchUpAll), "all: send one for each", string(schedule.CatchUpNone), "none: send nothing for those over a minute ago"),
		area("Body", "body", "6"),
		choice("The body is written as", "encoding", v.get("encoding"), asText, "text", asBase64, "base64"),
		area("Attributes: a line NAME=VALUE for each, or a JSON object", "attributes", "3"),
		h.Div(h.Class("actions"), h.Button(h.Class("primary"), h.Type("submit"), h.Text("Check…")), h.A(h.Class("button"), h.Href("schedules"), h.Text("Cancel")))))
	return nil
}

// problemAt returns the problem of a field that has it.
func problemAt(here bool, message string) string {
	if here {
		return message
	}
	return ""
}

// fieldWithHelp is a labelled field that may have a problem; control makes its control with further attributes.
func fieldWithHelp(label, name, problem string, control func(more h.Node) h.Node) h.Node {
	if problem == "" {
		return h.Div(h.Class("field"), h.Label(h.For("f-"+name), h.Text(label)), control(nil))
	}
	return h.Div(h.Class("field"), h.Label(h.For("f-"+name), h.Text(label)),
		control(h.Group{h.Aria("invalid", "true"), h.Aria("describedby", "p-"+name)}),
		h.P(h.ID("p-"+name), h.Class("wrong"), h.Text(problem)))
}

// putSchedule reads the form of a schedule.
func (v *view) putSchedule() (schedule.Schedule, error) {
	s := schedule.Schedule{Queue: v.get("queue"), Name: v.get("schedule"), Cron: strings.TrimSpace(v.get("cron")), Zone: strings.TrimSpace(v.get("zone")), CatchUp: schedule.CatchUp(v.get("catch_up"))}
	if text := strings.TrimSpace(v.get("every")); text != "" {
		var err error
		if s.Every, err = time.ParseDuration(text); err != nil {
			return s, invalid("Every", "want an interval like 90s, 15m or 24h")
		}
	}
	s.Body = []byte(strings.ReplaceAll(v.get("body"), "\r\n", "\n"))
	if v.get("encoding") == asBase64 {
		body, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(v.get("body")), ""))
		if err != nil {
			return s, invalid("Body", "is not base64")
		}
		s.Body = body
	}
	var err error
	s.Attributes, err = parseAttributes(v.get("attributes"))
	return s, err
}

func previewPutSchedule(v *view) (preparation, error) {
	s, err := v.putSchedule()
	if err != nil {
		return preparation{}, err
	}
	now := time.Now()
	s.Created = now.UTC()
	kept := "It is a new schedule."
	if s.Name != "" && s.Queue != "" {
		known, err := v.caller.Schedule(v.ctx(), s.Queue, s.Name)
		switch {
		case err == nil:
			s.Created, s.Paused = known.Schedule.Created, known.Schedule.Paused
			kept = "It replaces the schedule of this name, which is due " + when(&known.Status) + "."
		case errors.Is(err, driver.ErrNotFound):
			if _, err := v.caller.Traits(v.ctx(), s.Queue); err != nil {
				return preparation{}, invalid("Queue", "there is no queue of this name; a queue begins to exist when something is sent to it")
			}
		case !errors.Is(err, driver.ErrConflict):
			return preparation{}, err
		}
	}
	calendar, err := s.Compile()
	if err != nil {
		return preparation{}, err
	}
	status := schedule.Status{Schedule: s}
	p := preparation{
		title: "Store schedule " + s.Name, button: "Store 1 schedule", touched: 0, after: v.scheduleBack(),
		back:     link("edit-schedule", "queue", s.Queue, "schedule", s.Name),
		sentence: "It sends a message of " + count(len(s.Body), "byte") + " to " + s.Queue + ", " + when(&status) + ". " + kept,
	}
	zone, err := time.LoadLocation(s.Zone)
	if err != nil {
		return p, invalid("Zone", err.Error())
	}
	var due []h.Node
	for next := calendar.Next(now); !s.Paused && !next.IsZero() && len(due) < shownDueTimes; next = calendar.Next(next) {
		due = append(due, h.Li(dueTime(&s, next.In(zone)), h.Text(", "), ago(next, now)))
	}
	p.details = h.Group{h.H2(h.Text("Next")), h.If(s.Paused, h.P(h.Text("It is paused and stays so."))), h.Ul(h.Group(due))}
	var fields h.Group
	for _, name := range scheduleFields {
		fields = append(fields, hiddenField(name, v.get(name)))
	}
	p.fields = fields
	return p, nil
}

func doPutSchedule(v *view, _ int) (string, error) {
	s, err := v.putSchedule()
	if err == nil {
		_, err = v.caller.PutSchedule(v.ctx(), s.Queue, s)
	}
	return "Stored schedule " + s.Name + ".", err
}

// dueTime shows a due time in the zone of its schedule; those of an interval have none.
func dueTime(s *schedule.Schedule, t time.Time) h.Node {
	if s.Cron == "" {
		return moment(t)
	}
	return h.Time(h.DateTime(t.UTC().Format(time.RFC3339Nano)), h.TitleAttr(t.UTC().Format(exact)), h.Text(t.Format("Mon 2006-01-02 15:04:05 MST")))
}
