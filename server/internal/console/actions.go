package console

import (
	"context"
	"crypto/rand"
	"errors"
	"net/url"
	"strconv"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	h "github.com/mailboxmq/mailbox/server/internal/console/markup"
	"github.com/mailboxmq/mailbox/server/internal/wireerr"
)

// An action is a change that people ask for. The confirmation page shows its preview, and
// a POST makes it.
type action struct {
	name string
	// needs are the operations that the token must allow, on the queue of the form or, if
	// it has none, on any.
	needs []capability.Operation
	// allowed, if it is not nil, decides instead of needs.
	allowed func(v *view) bool
	// preview says what the change would touch. It changes nothing.
	preview func(v *view) (preparation, error)
	// do makes the change, and says what it did. confirmed is the number of messages that
	// the person has seen on the confirmation.
	do func(v *view, confirmed int) (string, error)
	// form, if it is not nil, shows the form that the change came from, with what is invalid about it.
	form func(v *view, p *page, problem error) error
}

// A preparation is what a confirmation page says.
type preparation struct {
	title, sentence, button string
	// touched is how many messages the change touches.
	touched     int
	destructive bool
	details     h.Node // nil if there are none
	// fields are inputs of the form; nil if there are none.
	fields h.Node
	// back is the page to go to when the person cancels, and after, if it is not empty,
	// that after the change.
	back, after string
}

var actions []action

// The table is filled in init, because its functions refer to it.
func init() {
	admin, dlq := []capability.Operation{capability.OpAdmin}, []capability.Operation{capability.OpDLQ}
	actions = []action{
		{name: "pause", needs: admin, preview: previewPause, do: doPause},
		{name: "resume", needs: admin, preview: previewResume, do: doResume},
		{name: "purge", needs: []capability.Operation{capability.OpPurge, capability.OpStats}, preview: previewPurge, do: doPurge},
		{name: "redrive", needs: dlq, preview: previewRedrive, do: doRedrive},
		{name: "discard", needs: dlq, preview: previewDiscard, do: doDiscard},
		{name: "count", needs: dlq, preview: previewCount, do: doCount},
		{name: "stop-job", needs: dlq, preview: previewStopJob, do: doStopJob},
		{name: "remove", needs: admin, preview: previewRemove, do: doRemove},
		{name: "ready", needs: admin, preview: previewReady, do: doReady},
		{name: "due", needs: admin, preview: previewDue, do: doDue},
		{name: "priority", needs: admin, preview: previewPriority, do: doPriority},
		{name: "put-schedule", needs: []capability.Operation{capability.OpAdmin, capability.OpSend}, preview: previewPutSchedule, do: doPutSchedule, form: scheduleForm},
		{name: "pause-schedule", needs: admin, preview: previewPauseSchedule, do: doPauseSchedule},
		{name: "resume-schedule", needs: admin, preview: previewResumeSchedule, do: doResumeSchedule},
		{name: "run-schedule", needs: []capability.Operation{capability.OpAdmin, capability.OpSend}, preview: previewRunSchedule, do: doRunSchedule},
		{name: "remove-schedule", needs: admin, preview: previewRemoveSchedule, do: doRemoveSchedule},
		{name: "cancel-request", needs: admin, allowed: (*view).mayCancel, preview: previewCancelRequest, do: doCancelRequest},
		{name: "mint", needs: admin, preview: previewMint, do: doMint},
		{name: "revoke", needs: admin, preview: previewRevoke, do: doRevoke},
	}
}

// action returns the one that the form names, if the session allows it.
func (v *view) action() (*action, error) {
	for i := range actions {
		a := &actions[i]
		if a.name != v.get("do") {
			continue
		}
		if a.allowed != nil {
			if !a.allowed(v) {
				return nil, v.notAllowed(a.needs[0])
			}
			return a, nil
		}
		for _, operation := range a.needs {
			if !v.mayChange(operation, v.get("queue")) {
				return nil, v.notAllowed(operation)
			}
		}
		return a, nil
	}
	return nil, errNoPage
}

func (v *view) notAllowed(operation capability.Operation) error {
	detail := "the token does not allow " + operation.String() + " here"
	switch {
	case v.session.readOnly:
		detail = "this session is read-only; sign in again to change something"
	case v.tenant != "":
		detail = "an operator only reads the queues of tenants; use a token of the tenant"
	}
	return &driver.Error{Code: driver.ErrForbidden, Op: "change", Queue: v.get("queue"), Detail: detail}
}

// confirmPage shows what a change would touch, and asks.
func confirmPage(v *view, p *page) error {
	a, err := v.action()
	if err != nil {
		return err
	}
	prepared, err := a.preview(v)
	if a.form != nil && errors.Is(err, driver.ErrInvalid) {
		return a.form(v, p, err)
	}
	if err != nil {
		return err
	}
	p.title = prepared.title
	p.heading(h.Text(prepared.title))
	class := "primary"
	if prepared.destructive {
		class = "danger"
	}
	p.add(h.Section(h.Class("panel confirm"),
		h.P(h.Text(prepared.sentence)),
		prepared.details,
		h.Form(h.Method("post"), h.Action("do"),
			v.csrfField(), hiddenField("form", rand.Text()), hiddenField("touched", strconv.Itoa(prepared.touched)), hiddenField("back", prepared.back), hiddenField("after", prepared.after),
			v.carried(), prepared.fields,
			h.Div(h.Class("actions"), h.Button(h.Class(class), h.Type("submit"), h.Text(prepared.button)), h.A(h.Class("button"), h.Href(prepared.back), h.Text("Cancel"))),
		),
	))
	return nil
}

// carried repeats the parameters of a change in its form.
func (v *view) carried() h.Node {
	var nodes h.Group
	for _, name := range append([]string{"do", "queue", "id", "cause", "schedule", "slot", "token", "job"}, deadFilterNames...) {
		nodes = append(nodes, hiddenField(name, v.get(name)))
	}
	return nodes
}

// do is POST do: it makes a change and shows the page that it came from. A browser whose user
// clicks twice drops the first request and sends the form again: the first is carried out to its
// end, and the second changes nothing.
func (v *view) do() error {
	if err := v.checkCSRF(); err != nil {
		return err
	}
	v.values = url.Values(v.request.PostForm) // nothing of the address counts
	if err := v.enter(); err != nil {
		return err
	}
	a, err := v.action()
	if err != nil {
		return err
	}
	confirmed, err := strconv.Atoi(v.get("touched"))
	form := v.get("form")
	if err != nil || confirmed < 0 || form == "" || len(form) > maxFormID {
		return invalid("touched", "is missing; confirm the change on its page")
	}
	if !v.session.begins(form) {
		v.redirect(nextPage(v.get("back")))
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(v.ctx()), pageTimeout)
	defer cancel()
	v.request = v.request.WithContext(ctx)
	done, err := a.do(v, confirmed)
	if err != nil {
		v.session.tell(notice{text: "Not done: " + wireerr.Of(err).Message()})
		v.redirect(nextPage(v.get("back")))
		return nil
	}
	v.session.tell(notice{text: done, good: true, secret: v.secret})
	next := v.get("after")
	if next == "" {
		next = v.get("back")
	}
	v.redirect(nextPage(next))
	return nil
}
