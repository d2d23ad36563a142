package console

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/server/internal/broker"
	h "github.com/mailboxmq/mailbox/server/internal/console/markup"
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
			count(stats.Waiting(), "message"), number(stats.Ready), number(stats.Delayed), number(stats.InFlight)) +
			" It is refused if more wait when you confirm. A purge removes all that wait at that moment: a message that arrives between the count and the purge, which follow each other at once, is removed too. Pausing does not stop sends.",
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

// previewDead prepares a redrive or a discard.
func (v *view) previewDead(verb, outcome string, destructive bool) (preparation, error) {
	s, err := v.selected()
	p := preparation{
		title: verb + " " + s.number(), button: verb + " " + s.number(), destructive: destructive, touched: s.count, back: s.back,
		sentence: "This " + strings.ToLower(verb) + "s " + s.number() + " " + s.words + ". " + outcome,
	}
	if s.id != "" {
		return p, err
	}
	p.sentence += " It runs as a job, which shows its progress and can be stopped. Dead letters that die from now on are left."
	p.fields = h.Group{s.confirmation(), field("Dead letters a second at most; 0 for no limit", "rate", strconv.Itoa(suggestedRate), h.Type("number"), h.Attr("min", "0"), h.Attr("max", strconv.Itoa(broker.MaxJobRate)))}
	if s.cut {
		p.details = h.P(h.Text("There are too many to count them for this page. "), h.A(h.Href(link("confirm", append([]string{"do", "count", "queue", v.get("queue"), "cause", s.conditions.Cause}, v.filtered()...)...)), h.Text("Count them first")), h.Text("."))
	}
	return p, err
}

func previewRedrive(v *view) (preparation, error) {
	return v.previewDead("Redrive", "Redriven messages are ready again, and their deliveries count from 0.", false)
}

func previewDiscard(v *view) (preparation, error) {
	p, err := v.previewDead("Discard", "Discarded messages are removed for good.", true)
	if v.get("id") != "" {
		p.after = v.queueBack()
	}
	return p, err
}

func doRedrive(v *view, confirmed int) (string, error) {
	if id := v.get("id"); id != "" {
		moved, err := v.caller.Redrive(v.ctx(), v.get("queue"), []string{id}, 0)
		return count(moved, "dead letter") + " of " + v.get("queue") + " made ready.", err
	}
	return v.startJob(broker.JobRedrive, confirmed)
}

func doDiscard(v *view, confirmed int) (string, error) {
	if id := v.get("id"); id != "" {
		removed, err := v.caller.Discard(v.ctx(), v.get("queue"), []string{id})
		return count(removed, "dead letter") + " of " + v.get("queue") + " discarded.", err
	}
	return v.startJob(broker.JobDiscard, confirmed)
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
	p.details = h.P(stateBadge(m.State), h.Text(" "), h.Code(h.Text(preview(m.Body))))
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

func previewPriority(v *view) (preparation, error) {
	p, err := v.previewEdit(preparation{
		title: "Change the priority", button: "Change",
		sentence: "Of the messages of " + v.get("queue") + ", those with a higher priority go first. Message " + v.get("id") + " keeps its place and its age.",
	})
	p.fields = field(fmt.Sprintf("Priority, 0 to %d", driver.MaxPriority), "priority", v.get("now"), h.Type("number"), h.Attr("min", "0"), h.Attr("max", strconv.Itoa(driver.MaxPriority)), h.Required())
	return p, err
}

func doPriority(v *view, _ int) (string, error) {
	priority, err := strconv.Atoi(v.get("priority"))
	if err != nil {
		return "", invalid("priority", fmt.Sprintf("want a number from 0 to %d", driver.MaxPriority))
	}
	_, err = v.caller.Edit(v.ctx(), v.get("queue"), v.get("id"), driver.Edit{Prioritize: true, Priority: priority})
	return fmt.Sprintf("The priority of the message is %d.", priority), err
}
