package oap

import (
	"github.com/mailboxmq/mailbox/driver"
)

// StreamCredit is how many chunks of a stream a server sends before the client
// has asked for more with EventCredit.
const StreamCredit = 4

func appendTexts[T ~string](dst []byte, texts []T) []byte {
	dst = appendNumber(dst, uint64(len(texts)))
	for _, text := range texts {
		dst = appendText(dst, string(text))
	}
	return dst
}

func readTexts[T ~string](r *reader) []T {
	n := r.count(1)
	if n == 0 {
		return nil
	}
	texts := make([]T, n)
	for i := range texts {
		texts[i] = T(r.text())
	}
	return texts
}

// AppendPeek writes the payload of OpPeek.
func AppendPeek(dst []byte, t Target, q *driver.Query) []byte {
	dst = AppendTarget(dst, t)
	dst = appendTexts(dst, q.States)
	dst = appendText(dst, q.ID)
	dst = appendAttributes(dst, q.Attributes)
	dst = appendDuration(dst, q.OlderThan)
	dst = appendText(dst, string(q.Reason))
	return appendSigned(dst, int64(q.Limit))
}

// ParsePeek reads the payload of OpPeek.
func ParsePeek(payload []byte) (Target, driver.Query, error) {
	r := reader{rest: payload}
	t := r.target()
	q := driver.Query{
		States: readTexts[driver.State](&r), ID: r.text(), Attributes: r.attributes(),
		OlderThan: r.duration(), Reason: driver.Reason(r.text()), Limit: r.int(),
	}
	return t, q, r.end()
}

// AppendDeadLetter writes a dead letter. Dead letters follow each other to the
// end of a payload, which is an answer to OpDeadLetters.
func AppendDeadLetter(dst []byte, l *driver.DeadLetter) []byte {
	dst = appendMessage(dst, &l.Message)
	dst = appendText(dst, l.Source)
	dst = appendText(dst, string(l.Reason))
	dst = appendText(dst, l.ErrorType)
	dst = appendTime(dst, l.DeadAt)
	return appendSigned(dst, int64(l.Redrives))
}

func (r *reader) deadLetter(l *driver.DeadLetter) {
	r.message(&l.Message)
	l.Source = r.kept()
	l.Reason = driver.Reason(r.kept())
	l.ErrorType = r.kept()
	l.DeadAt = r.time()
	l.Redrives = r.int()
}

// ParseDeadLetters reads dead letters. They keep the payload, which must not be
// changed or used again.
func ParseDeadLetters(payload []byte) (letters []driver.DeadLetter, err error) {
	r := reader{rest: payload}
	for len(r.rest) > 0 {
		letters = append(letters, driver.DeadLetter{})
		r.deadLetter(&letters[len(letters)-1])
	}
	return letters, r.end()
}

// AppendPeeked writes a message that was looked at. They follow each other to
// the end of a payload, which is an answer to OpPeek.
func AppendPeeked(dst []byte, p *driver.Peeked) []byte {
	dst = AppendDeadLetter(dst, &p.DeadLetter)
	dst = appendText(dst, string(p.State))
	return appendTime(dst, p.DueAt)
}

// ParsePeeked reads messages that were looked at. They keep the payload, which
// must not be changed or used again.
func ParsePeeked(payload []byte) (peeked []driver.Peeked, err error) {
	r := reader{rest: payload}
	for len(r.rest) > 0 {
		peeked = append(peeked, driver.Peeked{})
		p := &peeked[len(peeked)-1]
		r.deadLetter(&p.DeadLetter)
		p.State = driver.State(r.kept())
		p.DueAt = r.time()
	}
	return peeked, r.end()
}

// AppendQueueName writes the name of a queue. They follow each other to the end
// of a payload, which is an answer to OpQueues.
func AppendQueueName(dst []byte, name string) []byte { return appendText(dst, name) }

// ParseQueueNames reads names of queues.
func ParseQueueNames(payload []byte) (names []string, err error) {
	r := reader{rest: payload}
	for len(r.rest) > 0 {
		names = append(names, r.text())
	}
	return names, r.end()
}

// Redrive is the payload of OpRedrive.
type Redrive struct {
	Target
	// All says that no ids were given, which is another thing than none.
	All   bool
	IDs   []string
	Limit int
}

// AppendRedrive writes the payload of OpRedrive.
func AppendRedrive(dst []byte, d *Redrive) []byte {
	dst = AppendTarget(dst, d.Target)
	dst = appendFlag(dst, d.All)
	dst = appendTexts(dst, d.IDs)
	return appendSigned(dst, int64(d.Limit))
}

// ParseRedrive reads the payload of OpRedrive.
func ParseRedrive(payload []byte) (d Redrive, err error) {
	r := reader{rest: payload}
	d = Redrive{Target: r.target(), All: r.flag(), IDs: readTexts[string](&r), Limit: r.int()}
	if d.All && len(d.IDs) > 0 {
		r.fail("all, and some")
	}
	return d, r.end()
}

// AppendDiscard writes the payload of OpDiscard.
func AppendDiscard(dst []byte, t Target, ids []string) []byte {
	return appendTexts(AppendTarget(dst, t), ids)
}

// ParseDiscard reads the payload of OpDiscard.
func ParseDiscard(payload []byte) (Target, []string, error) {
	r := reader{rest: payload}
	t, ids := r.target(), readTexts[string](&r)
	return t, ids, r.end()
}

// AppendMoved writes the answer to OpRedrive: how many messages moved, and why
// no more did.
func AppendMoved(dst []byte, moved int, err error) []byte {
	dst = AppendCount(dst, moved)
	dst = appendFlag(dst, err != nil)
	if err != nil {
		dst = AppendError(dst, ErrorOf(err))
	}
	return dst
}

// ParseMoved reads the answer to OpRedrive.
func ParseMoved(payload []byte) (moved int, failure *driver.Error, err error) {
	r := reader{rest: payload}
	moved = r.limit()
	if r.flag() {
		failure = r.failure()
	}
	return moved, failure, r.end()
}
