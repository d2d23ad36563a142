package console

import (
	"errors"
	"fmt"
	"time"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	"github.com/mailboxmq/mailbox/driver"
)

func (v *view) queueBack() string { return link("queue", "name", v.get("queue")) }

func previewPause(v *view) (preparation, error) {
	queue := v.get("queue")
	stats, err := v.caller.Stats(v.ctx(), queue)
	return preparation{
		title: "Pause " + queue, button: "Pause", back: v.queueBack(), touched: stats.Waiting(),
		sentence: "Receivers get no messages of " + queue + " until it is resumed. Sends go on; " + count(stats.InFlight, "message") + " in flight can be settled, and " + count(stats.Ready, "ready message") + " wait.",
	}, err
}

func doPause(v *view, _ int) (string, error) {
	return "Paused " + v.get("queue") + ".", v.caller.Pause(v.ctx(), v.get("queue"))
}

func previewResume(v *view) (preparation, error) {
	queue := v.get("queue")
	stats, err := v.caller.Stats(v.ctx(), queue)
	return preparation{
		title: "Resume " + queue, button: "Resume", back: v.queueBack(), touched: stats.Waiting(),
		sentence: "Receivers get messages of " + queue + " again: " + count(stats.Ready, "message") + " are ready.",
	}, err
}

func doResume(v *view, _ int) (string, error) {
	return "Resumed " + v.get("queue") + ".", v.caller.Resume(v.ctx(), v.get("queue"))
}

func previewPurge(v *view) (preparation, error) {
	queue := v.get("queue")
	stats, err := v.caller.Stats(v.ctx(), queue)
	return preparation{
		title: "Purge " + queue, button: "Remove " + count(stats.Waiting(), "message"), destructive: true, back: v.queueBack(), touched: stats.Waiting(),
		sentence: fmt.Sprintf("This removes %s for good: %s ready, %s delayed, %s in flight. Dead letters stay.",
			count(stats.Waiting(), "message"), number(stats.Ready), number(stats.Delayed), number(stats.InFlight)),
	}, err
}

func doPurge(v *view, confirmed int) (string, error) {
	queue := v.get("queue")
	stats, err := v.caller.Stats(v.ctx(), queue)
	if err == nil && stats.Waiting() > confirmed {
		err = grown(stats.Waiting(), confirmed)
	}
	if err != nil {
		return "", err
	}
	removed, err := v.caller.Purge(v.ctx(), queue)
	return "Removed " + count(removed, "message") + " from " + queue + ".", err
}

// grown refuses a change that would touch more messages than were confirmed.
func grown(now, confirmed int) error {
	return &driver.Error{
		Code: driver.ErrConflict, Op: "change",
		Detail: fmt.Sprintf("it would touch %s now, and %s were confirmed; look again and confirm", count(now, "message"), number(confirmed)),
	}
}

// A selection is the dead letters that a form names: one, those of a cause, or all.
type selection struct {
	ids   []string
	until time.Time // the latest death among them; zero if that does not count
	words string
	back  string
	after string
	cut   bool
}

// redriveBatch is how many dead letters one call of the broker names.
const redriveBatch = 100

// selected finds the dead letters that a form names. It is the dry run of a change. A form that was
// confirmed has the latest death that the person has seen: later dead letters are not selected.
func (v *view) selected() (selection, error) {
	queue := v.get("queue")
	if id := v.get("id"); id != "" {
		return selection{
			ids: []string{id}, words: "message " + id + " of " + queue,
			back: link("message", "queue", queue, "id", id), after: link("queue", "name", queue),
		}, nil
	}
	until, _ := time.Parse(time.RFC3339Nano, v.get("until")) // zero before the confirmation
	found, err := v.survey(queue, until)
	if err != nil {
		return selection{}, err
	}
	s := selection{words: "of " + queue, back: link("dead", "queue", queue), cut: found.cut}
	causes := found.causes
	if id := v.get("cause"); id != "" {
		c := found.cause(id)
		if c == nil {
			return selection{}, &driver.Error{Code: driver.ErrNotFound, Op: "select", Queue: queue, Detail: "no dead letter has this cause any more"}
		}
		causes = []*cause{c}
		s.words, s.back, s.after = "of "+queue+" with the cause: "+c.name(), link("dead", "queue", queue, "cause", id), link("dead", "queue", queue)
	}
	for _, c := range causes {
		for _, l := range c.letters {
			s.ids = append(s.ids, l.id)
		}
		if c.last.After(s.until) {
			s.until = c.last
		}
	}
	return s, nil
}

// confirmation carries what the person has seen of a selection.
func (s *selection) confirmation() g.Node {
	if s.until.IsZero() {
		return nil
	}
	return hiddenField("until", s.until.Format(time.RFC3339Nano))
}

// more says that a selection is a part.
func (s *selection) more() string {
	if s.cut {
		return " There are more: repeat it for the others."
	}
	return ""
}

func previewRedrive(v *view) (preparation, error) {
	s, err := v.selected()
	n := len(s.ids)
	return preparation{
		title: "Redrive " + count(n, "dead letter"), button: "Redrive " + count(n, "message"), touched: n, back: s.back, after: s.after, fields: s.confirmation(),
		sentence: "This makes " + count(n, "dead letter") + " ready again, " + s.words + ". Their deliveries count from 0." + s.more(),
	}, err
}

func previewDiscard(v *view) (preparation, error) {
	s, err := v.selected()
	n := len(s.ids)
	return preparation{
		title: "Discard " + count(n, "dead letter"), button: "Discard " + count(n, "message"), destructive: true, touched: n, back: s.back, after: s.after, fields: s.confirmation(),
		sentence: "This removes " + count(n, "dead letter") + " for good, " + s.words + "." + s.more(),
	}, err
}

func doRedrive(v *view, confirmed int) (string, error) {
	moved, err := v.inBatches(confirmed, func(ids []string) (int, error) {
		return v.caller.Redrive(v.ctx(), v.get("queue"), ids, 0)
	})
	return count(moved, "dead letter") + " of " + v.get("queue") + " made ready.", partly(moved, "made ready", err)
}

func doDiscard(v *view, confirmed int) (string, error) {
	removed, err := v.inBatches(confirmed, func(ids []string) (int, error) {
		return v.caller.Discard(v.ctx(), v.get("queue"), ids)
	})
	return count(removed, "dead letter") + " of " + v.get("queue") + " discarded.", partly(removed, "discarded", err)
}

// inBatches calls change with the ids of the selected dead letters, and with no more of them
// than were confirmed.
func (v *view) inBatches(confirmed int, change func(ids []string) (int, error)) (done int, err error) {
	s, err := v.selected()
	if err != nil {
		return 0, err
	}
	ids := s.ids[:min(len(s.ids), confirmed)]
	for len(ids) > 0 {
		n := min(len(ids), redriveBatch)
		changed, err := change(ids[:n])
		done += changed
		if err != nil {
			return done, err
		}
		ids = ids[n:]
	}
	return done, nil
}

// partly says how far a change came that failed.
func partly(done int, what string, err error) error {
	if err == nil || done == 0 {
		return err
	}
	return &driver.Error{Code: driver.ErrUnavailable, Op: "change", Detail: count(done, "message") + " " + what + " before it failed", Err: err}
}

func (v *view) messageBack() string {
	return link("message", "queue", v.get("queue"), "id", v.get("id"))
}

// previewEdit reads the message that a change concerns.
func (v *view) previewEdit(p preparation) (preparation, error) {
	id := v.get("id")
	p.touched, p.back = 1, v.messageBack()
	trace, err := v.caller.Trace(v.ctx(), v.get("queue"), id)
	if err != nil {
		return p, err
	}
	m := trace.Message
	if m == nil {
		return p, &driver.Error{Code: driver.ErrNotFound, Op: "edit", Queue: v.get("queue"), MessageID: id, Detail: "the message is not in the queue any more"}
	}
	p.details = h.P(stateBadge(m.State), g.Text(" "), h.Code(g.Text(preview(m.Body))))
	return p, nil
}

func previewRemove(v *view) (preparation, error) {
	return v.previewEdit(preparation{
		title: "Remove a message", button: "Remove 1 message", destructive: true, after: v.queueBack(),
		sentence: "This removes message " + v.get("id") + " of " + v.get("queue") + " for good.",
	})
}

func doRemove(v *view, _ int) (string, error) {
	_, err := v.caller.Edit(v.ctx(), v.get("queue"), v.get("id"), driver.Edit{Remove: true})
	return "Removed message " + v.get("id") + ".", err
}

func previewReady(v *view) (preparation, error) {
	return v.previewEdit(preparation{
		title: "Make a message ready", button: "Make ready",
		sentence: "Receivers can get message " + v.get("id") + " of " + v.get("queue") + " at once.",
	})
}

func doReady(v *view, _ int) (string, error) {
	_, err := v.caller.Edit(v.ctx(), v.get("queue"), v.get("id"), driver.Edit{Ready: true})
	return "The message is ready.", err
}

// suggestedDelay is the due time that the form begins with.
const suggestedDelay = time.Hour

func previewDue(v *view) (preparation, error) {
	at := time.Now().Add(suggestedDelay).UTC().Format("2006-01-02 15:04:05")
	return v.previewEdit(preparation{
		title: "Change the due time", button: "Change",
		sentence: "Receivers cannot get message " + v.get("id") + " of " + v.get("queue") + " before this time.",
		fields:   field("Due time, in UTC", "at", at, h.Required()),
	})
}

func doDue(v *view, _ int) (string, error) {
	at, err := due(v.get("at"))
	if err != nil {
		return "", invalid("due time", err.Error())
	}
	_, err = v.caller.Edit(v.ctx(), v.get("queue"), v.get("id"), driver.Edit{DeliverAt: at})
	if errors.Is(err, driver.ErrConflict) {
		err = &driver.Error{Code: driver.ErrConflict, Op: "edit", Queue: v.get("queue"), Detail: "the message is in flight or dead, and has no due time"}
	}
	return "The message is due at " + at.UTC().Format(time.RFC3339) + ".", err
}
