package diskbox

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// This file compares what a crash left with the books.

// A crashVerdict is what is wrong with an image.
type crashVerdict struct {
	lost, back int
	unopenable bool
	wrong      []string
}

func (v *crashVerdict) addf(format string, args ...any) {
	v.wrong = append(v.wrong, fmt.Sprintf(format, args...))
}

func (v *crashVerdict) err() error {
	if len(v.wrong) == 0 {
		return nil
	}
	errs := make([]error, 0, 8)
	for _, wrong := range v.wrong[:min(len(v.wrong), cap(errs))] {
		errs = append(errs, errors.New(wrong))
	}
	return errors.Join(errs...)
}

// judgeLook compares what was found at first with the book. It returns what
// was found, by token.
func (v *crashVerdict) judgeLook(book *crashBook, c *crashContent, at time.Time) []crashFind {
	finds := make([]crashFind, len(book.items))
	for token := range finds {
		finds[token].state = isAbsent
	}
	switch {
	case !c.exists && book.configured:
		v.lost++
		v.addf("queue %s is lost", book.name)
	case c.exists && c.config != book.config.Effective():
		v.addf("queue %s has another configuration: %+v", book.name, c.config)
	}
	var counts driver.Stats
	for n := range c.peeked {
		p := &c.peeked[n]
		count(&counts, p.State, 1)
		token, ok := tokenOf(&p.Message, book)
		if !ok {
			v.addf("queue %s: message %s (%d bytes) was never sent", book.name, p.ID, len(p.Body))
			continue
		}
		if finds[token].state != isAbsent {
			v.addf("queue %s: message %d is there twice", book.name, token)
		}
		finds[token] = crashFind{state: isWaiting, id: p.ID, deliveries: p.Deliveries, redrives: p.Redrives, lastError: p.LastError}
		if p.State == driver.StateDead {
			finds[token].state = isDead
		}
		v.judgeMessage(book, token, p, at)
	}
	if counts != c.stats {
		v.addf("queue %s: there are %+v, but stats say %+v", book.name, counts, c.stats)
	}
	for token := range book.items {
		v.judgeState(book, token, finds[token].state, at)
	}
	return finds
}

// count adds n messages in a state.
func count(stats *driver.Stats, state driver.State, n int) {
	switch state {
	case driver.StateReady:
		stats.Ready += n
	case driver.StateDelayed:
		stats.Delayed += n
	case driver.StateInFlight:
		stats.InFlight += n
	case driver.StateDead:
		stats.Dead += n
	}
}

func (v *crashVerdict) judgeState(book *crashBook, token int, state stateSet, at time.Time) {
	i := &book.items[token]
	allowed := book.reachable(i, at)
	if allowed&state != 0 {
		return
	}
	switch state {
	case isAbsent:
		v.lost++
	default:
		if allowed == isAbsent {
			v.back++
		}
	}
	v.addf("queue %s: message %d (%s) is %v; it should be %v", book.name, token, i.id, state, allowed)
}

// judgeMessage compares one message that was found with what was sent.
func (v *crashVerdict) judgeMessage(book *crashBook, token int, p *driver.Peeked, at time.Time) {
	i := &book.items[token]
	wrong := func(format string, args ...any) {
		v.addf("queue %s: %s message %d: %s", book.name, p.State, token, fmt.Sprintf(format, args...))
	}
	v.judgeContent(book, token, &p.Message)
	if !i.sentAt[1].IsZero() && !p.EnqueuedAt.IsZero() && !book.goingHome() && (p.EnqueuedAt.Before(i.sentAt[0]) || p.EnqueuedAt.After(i.sentAt[1])) {
		wrong("enqueued at %v, not in %v…%v", p.EnqueuedAt, i.sentAt[0], i.sentAt[1])
	}
	if p.State == driver.StateInFlight && i.deliveries+book.pending[deedReceive] == 0 {
		wrong("it was not received")
	}
	if i.fuzzy || book.pending[deedMove] > 0 {
		return
	}
	redriving := int(i.pending[deedRedrive]) + book.pending[deedRedrive]
	if p.State == driver.StateReady && at.Before(i.notBefore) && redriving == 0 {
		wrong("it is ready %v too early", i.notBefore.Sub(at))
	}
	if most := i.deliveries + book.pending[deedReceive]; p.Deliveries > most || p.Deliveries < i.settledAt && redriving == 0 {
		wrong("it counts %d deliveries, not %d to %d", p.Deliveries, i.settledAt, most)
	}
	if p.Redrives < i.redrives || p.Redrives > i.redrives+redriving {
		wrong("it counts %d redrives, not %d to %d", p.Redrives, i.redrives, i.redrives+redriving)
	}
	errorAllowed := p.LastError == i.lastError ||
		i.pending[deedNack] > 0 && p.LastError == crashCause(token) ||
		i.pending[deedDeadLetter] > 0 && p.LastError == crashError(token)
	if !errorAllowed {
		wrong("its last error is %q, not %q", p.LastError, i.lastError)
	}
	if p.State == driver.StateDead {
		v.judgeDeath(book, token, p, at)
	}
}

// judgeDeath compares a dead letter with the ways in which it can have died.
func (v *crashVerdict) judgeDeath(book *crashBook, token int, p *driver.Peeked, at time.Time) {
	i := &book.items[token]
	possible := false
	switch p.Reason {
	case crashReason(token):
		possible = i.deadLettered && p.LastError == crashError(token) && p.ErrorType == crashErrorType
	case driver.ReasonMaxDeliveries:
		possible = book.canExhaust(i) && p.Deliveries >= book.config.MaxDeliveries
	case driver.ReasonExpired:
		possible = book.canExpire(i, at)
	}
	if p.Source != book.name {
		v.addf("queue %s: dead message %d comes from %q", book.name, token, p.Source)
	}
	dated := !i.died[1].IsZero() && !p.DeadAt.IsZero() && book.reachable(i, at)&isWaiting == 0 // else it may have died again
	if dated && (p.DeadAt.Before(i.died[0]) || p.DeadAt.After(i.died[1])) {
		v.addf("queue %s: message %d died at %v, not in %v…%v", book.name, token, p.DeadAt, i.died[0], i.died[1])
	}
	if !possible {
		v.addf("queue %s: message %d cannot have died of %q (%q, %q) after %d deliveries",
			book.name, token, p.Reason, p.LastError, p.ErrorType, p.Deliveries)
	}
}

// judgeContent compares what never changes.
func (v *crashVerdict) judgeContent(book *crashBook, token int, m *driver.Message) {
	i := &book.items[token]
	switch {
	case !bytes.Equal(m.Body, i.out.Body):
		v.addf("queue %s: message %d has a wrong body of %d bytes instead of %d", book.name, token, len(m.Body), len(i.out.Body))
	case i.id != "" && m.ID != i.id:
		v.addf("queue %s: message %d has id %s instead of %s", book.name, token, m.ID, i.id)
	case m.Group != i.out.Group || m.ReplyTo != i.out.ReplyTo || m.CorrelationID != i.out.CorrelationID || !maps.Equal(m.Attributes, i.out.Attributes):
		v.addf("queue %s: message %d has other properties: %q, %q, %q, %q",
			book.name, token, m.Group, m.ReplyTo, m.CorrelationID, m.Attributes)
	}
}

// judgeUse compares what the queue then did with what was found in it.
func (v *crashVerdict) judgeUse(book *crashBook, c *crashContent, finds []crashFind) {
	for n, token := range c.repeated {
		if n < len(c.repeats) {
			v.judgeRepeat(book, token, finds[token], c.repeats[n])
		}
	}
	received := make(map[int]bool)
	for _, round := range append(c.drained, c.redriven) {
		for n := range round {
			token, ok := tokenOf(&round[n].Message, book)
			switch {
			case !ok:
				v.addf("queue %s: received %s, which was never sent", book.name, round[n].ID)
				continue
			case received[token]:
				v.addf("queue %s: message %d came twice", book.name, token)
			case finds[token].state == isAbsent:
				v.back++
				v.addf("queue %s: received message %d, which was not there", book.name, token)
			}
			received[token] = true
			v.judgeContent(book, token, &round[n].Message)
		}
	}
	for _, round := range c.drained {
		v.judgeOrder(book, round)
	}
	v.judgeRest(book, c, finds, received)
}

// judgeRepeat checks that a key is remembered together with its message, or
// forgotten together with it.
func (v *crashVerdict) judgeRepeat(book *crashBook, token int, find crashFind, answer driver.Sent) {
	i := &book.items[token]
	known := i.id
	if known == "" {
		known = find.id
	}
	// Where it came and went unseen, its key may be there without it.
	unseen := i.changed > 0 || book.pending[deedPurge] > 0 || book.config.RetainDead != (driver.Retention{}) || book.config.DropExpired
	switch {
	case i.unsent && find.state == isAbsent && unseen:
	case i.unsent && find.state == isAbsent:
		if answer.Duplicate {
			v.addf("queue %s: message %d is not there, but its key is", book.name, token)
		}
	case !answer.Duplicate || answer.ID != known:
		v.lost++
		v.addf("queue %s: a repeated send of message %d (%s) is answered with %+v", book.name, token, known, answer)
	}
}

// judgeRest checks that nothing vanished while the queue was drained.
func (v *crashVerdict) judgeRest(book *crashBook, c *crashContent, finds []crashFind, received map[int]bool) {
	if c.left.Waiting() != 0 || c.left.Dead != len(c.leftDead) {
		v.addf("queue %s: after it was drained there are %+v, and %d dead letters", book.name, c.left, len(c.leftDead))
	}
	dead := make(map[int]bool)
	for n := range c.leftDead {
		token, ok := tokenOf(&c.leftDead[n].Message, book)
		if !ok || dead[token] || finds[token].state == isAbsent {
			v.addf("queue %s: dead letter %s came from nowhere", book.name, c.leftDead[n].ID)
			continue
		}
		dead[token] = true
		v.judgeContent(book, token, &c.leftDead[n].Message)
	}
	if book.config.RetainDead != (driver.Retention{}) || book.config.DeadLetterTo != "" || book.config.DropExpired {
		return // dead letters leave, and what is dropped does
	}
	for token := range finds {
		if finds[token].state != isAbsent && !received[token] && !dead[token] {
			v.lost++
			v.addf("queue %s: message %d was %v, and then neither received nor dead", book.name, token, finds[token].state)
		}
	}
	if c.redriven != nil && len(c.redriven) != len(c.leftDead) {
		v.lost++
		v.addf("queue %s: %d dead letters were redriven, %d were received", book.name, len(c.leftDead), len(c.redriven))
	}
}

// judgeOrder checks that messages that were all ready came in the order of
// their places, within their shard or group.
func (v *crashVerdict) judgeOrder(book *crashBook, round []driver.Delivery) {
	type latest struct{ began, token, batch, position int64 }
	lines := make(map[string]latest)
	for n := range round {
		token, ok := tokenOf(&round[n].Message, book)
		if !ok {
			continue
		}
		i := &book.items[token]
		line := ""
		if book.config.Shards > 1 || book.config.StrictGroups || book.config.FairGroups {
			line = round[n].Group
		}
		if book.placeUnknown(i) || book.config.Shards > 1 && line == "" {
			continue // its place, or its shard, is not known
		}
		before, seen := lines[line]
		overtaken := i.place.to < before.began
		inBatch := i.place.from == before.batch && i.place.position >= 0 && int64(i.place.position) < before.position
		if seen && (overtaken || inBatch) {
			v.addf("queue %s: message %d came before message %d, which is ahead of it", book.name, before.token, token)
			return
		}
		if !seen || i.place.from >= before.began {
			lines[line] = latest{i.place.from, int64(token), i.place.from, int64(i.place.position)}
		}
	}
}
