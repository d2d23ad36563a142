package oap

import "github.com/mailboxmq/mailbox/driver"

// What an edit does.
const (
	editRemoves = iota
	editMakesReady
	editReschedules
	editPrioritizes
)

// AppendEdit writes the payload of OpEdit.
func AppendEdit(dst []byte, t Target, id string, edit *driver.Edit) []byte {
	dst = appendText(AppendTarget(dst, t), id)
	switch {
	case edit.Remove:
		return append(dst, editRemoves)
	case edit.Ready:
		return append(dst, editMakesReady)
	case edit.Prioritize:
		return appendSigned(append(dst, editPrioritizes), int64(edit.Priority))
	}
	return appendDueTime(append(dst, editReschedules), edit.DeliverAt)
}

// ParseEdit reads the payload of OpEdit.
func ParseEdit(payload []byte) (t Target, id string, edit driver.Edit, err error) {
	r := reader{rest: payload}
	t, id = r.target(), r.text()
	switch r.byte() {
	case editRemoves:
		edit.Remove = true
	case editMakesReady:
		edit.Ready = true
	case editReschedules:
		edit.DeliverAt = r.dueTime()
	case editPrioritizes:
		edit.Prioritize, edit.Priority = true, r.int()
	default:
		r.fail("an unknown edit")
	}
	return t, id, edit, r.end()
}

// AppendEdited writes the answer to OpEdit: the state that the message was in.
func AppendEdited(dst []byte, was driver.State) []byte { return appendText(dst, string(was)) }

// ParseEdited reads the answer to OpEdit.
func ParseEdited(payload []byte) (was driver.State, err error) {
	r := reader{rest: payload}
	was = driver.State(r.text())
	return was, r.end()
}
