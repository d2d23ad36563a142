package httpapi

import "github.com/mailboxmq/mailbox/driver"

type editRequest struct {
	Queue     string `json:"topic"`
	MessageID string `json:"msg_id"`
	Remove    bool   `json:"remove"`
	Ready     bool   `json:"ready"`
	DeliverAt string `json:"deliver_at"`
	Priority  *int   `json:"priority"`
}

type editResponse struct {
	// State is the one that the message was in.
	State string `json:"state"`
}

// edit is POST /v1/edit.
func (h *Handler) edit(c *call) error {
	var r editRequest
	if err := c.decode(&r); err != nil {
		return err
	}
	switch {
	case r.Queue == "":
		return required("topic")
	case r.MessageID == "":
		return required("msg_id")
	}
	at, err := dueTime(r.DeliverAt)
	if err != nil {
		return err
	}
	edit := driver.Edit{Remove: r.Remove, Ready: r.Ready, DeliverAt: at}
	if r.Priority != nil {
		edit.Prioritize, edit.Priority = true, *r.Priority
	}
	was, err := c.caller.Edit(c.ctx(), r.Queue, r.MessageID, edit)
	if err != nil {
		return err
	}
	return c.ok(editResponse{string(was)})
}
