package diskbox

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// How the content of an image is compared with the models.

// A crashResult is what is wrong with an image.
type crashResult struct {
	lost, back int
	unopenable bool
	wrong      []string
}

func (v *crashResult) addf(format string, args ...any) {
	v.wrong = append(v.wrong, fmt.Sprintf(format, args...))
}

func (v *crashResult) err() error {
	if len(v.wrong) == 0 {
		return nil
	}
	errs := make([]error, 0, 8)
	for _, wrong := range v.wrong[:min(len(v.wrong), cap(errs))] {
		errs = append(errs, errors.New(wrong))
	}
	return errors.Join(errs...)
}

// checkLook compares the first content with the model. It returns the messages that were found,
// by token.
func (v *crashResult) checkLook(model *crashModel, c *crashContent, at time.Time) []crashFound {
	finds := make([]crashFound, len(model.messages))
	for token := range finds {
		finds[token].state = isAbsent
	}
	switch {
	case !c.exists && model.configured:
		v.lost++
		v.addf("queue %s is lost", model.name)
	case c.exists && c.config != model.config.Effective():
		v.addf("queue %s has another configuration: %+v", model.name, c.config)
	}
	var counts driver.Stats
	for n := range c.peeked {
		p := &c.peeked[n]
		count(&counts, p.State, 1)
		token, ok := tokenOf(&p.Message, model)
		if !ok {
			v.addf("queue %s: message %s (%d bytes) was never sent", model.name, p.ID, len(p.Body))
			continue
		}
		if finds[token].state != isAbsent {
			v.addf("queue %s: message %d is there twice", model.name, token)
		}
		finds[token] = crashFound{state: isWaiting, id: p.ID, deliveries: p.Deliveries, redrives: p.Redrives, lastError: p.LastError}
		if p.State == driver.StateDead {
			finds[token].state = isDead
		}
		v.checkMessage(model, token, p, at)
	}
	v.checkPaused(model, c)
	v.checkThrottled(model, c, at)
	if counts != c.stats {
		v.addf("queue %s: there are %+v, but stats say %+v", model.name, counts, c.stats)
	}
	for token := range model.messages {
		v.judgeState(model, token, finds[token].state, at)
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

func (v *crashResult) judgeState(model *crashModel, token int, state stateSet, at time.Time) {
	i := &model.messages[token]
	allowed := model.reachable(i, at)
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
	v.addf("queue %s: message %d (%s) is %v; it should be %v", model.name, token, i.id, state, allowed)
}

// checkMessage compares a found message with the sent one.
func (v *crashResult) checkMessage(model *crashModel, token int, p *driver.Peeked, at time.Time) {
	i := &model.messages[token]
	wrong := func(format string, args ...any) {
		v.addf("queue %s: %s message %d: %s", model.name, p.State, token, fmt.Sprintf(format, args...))
	}
	v.checkContent(model, token, &p.Message)
	if !i.sentAt[1].IsZero() && !p.EnqueuedAt.IsZero() && !model.goingHome() && (p.EnqueuedAt.Before(i.sentAt[0]) || p.EnqueuedAt.After(i.sentAt[1])) {
		wrong("enqueued at %v, not in %v…%v", p.EnqueuedAt, i.sentAt[0], i.sentAt[1])
	}
	if p.State == driver.StateInFlight && i.deliveries+model.pending[opReceive] == 0 {
		wrong("it was not received")
	}
	if i.fuzzy || model.pending[opMove] > 0 {
		return
	}
	redriving := int(i.pending[opRedrive]) + model.pending[opRedrive]
	if p.State == driver.StateReady && at.Before(i.notBefore) && redriving == 0 && i.pending[opEdit] == 0 {
		wrong("it is ready %v too early", i.notBefore.Sub(at))
	}
	if (p.State == driver.StateReady || p.State == driver.StateDelayed) && model.outlived(i, at) {
		wrong("it waits although its time to live is over")
	}
	if p.State == driver.StateDelayed && i.readied {
		wrong("it is delayed, but was made ready")
	}
	if most := i.deliveries + model.pending[opReceive]; p.Deliveries > most || p.Deliveries < i.settledAt && redriving == 0 {
		wrong("it counts %d deliveries, not %d to %d", p.Deliveries, i.settledAt, most)
	}
	if p.Redrives < i.redrives || p.Redrives > i.redrives+redriving {
		wrong("it counts %d redrives, not %d to %d", p.Redrives, i.redrives, i.redrives+redriving)
	}
	errorAllowed := p.LastError == i.lastError ||
		i.pending[opNack] > 0 && p.LastError == crashCause(token) ||
		i.pending[opDeadLetter] > 0 && p.LastError == crashError(token)
	if !errorAllowed {
		wrong("its last error is %q, not %q", p.LastError, i.lastError)
	}
	if p.State == driver.StateDead {
		v.checkDeath(model, token, p, at)
	}
}

// ttl returns the time to live of a message, or 0.
func (b *crashModel) ttl(i *crashMessage) time.Duration { return cmp.Or(i.out.TTL, b.config.TTL) }

// outlived reports whether the time to live of a message is certainly over.
func (b *crashModel) outlived(i *crashMessage, now time.Time) bool {
	unsure := i.bornBy.IsZero() || i.pending[opEdit] > 0 || i.pending[opRedrive] > 0 || b.pending[opRedrive] > 0
	return b.ttl(i) > 0 && !unsure && now.Sub(i.bornBy) >= b.ttl(i)
}

// checkDeath compares a dead letter with its possible deaths.
func (v *crashResult) checkDeath(model *crashModel, token int, p *driver.Peeked, at time.Time) {
	i := &model.messages[token]
	possible := false
	switch p.Reason {
	case crashReason(token):
		possible = i.deadLettered && p.LastError == crashError(token) && p.ErrorType == crashErrorType
	case driver.ReasonMaxDeliveries:
		possible = model.canExhaust(i) && p.Deliveries >= model.config.MaxDeliveries
	case driver.ReasonExpired:
		possible = model.canExpire(i, at)
	}
	if p.Source != model.name {
		v.addf("queue %s: dead message %d comes from %q", model.name, token, p.Source)
	}
	dated := !i.died[1].IsZero() && !p.DeadAt.IsZero() && model.reachable(i, at)&isWaiting == 0 // otherwise it may have died again
	if dated && (p.DeadAt.Before(i.died[0]) || p.DeadAt.After(i.died[1])) {
		v.addf("queue %s: message %d died at %v, not in %v…%v", model.name, token, p.DeadAt, i.died[0], i.died[1])
	}
	if !possible {
		v.addf("queue %s: message %d cannot have died of %q (%q, %q) after %d deliveries",
			model.name, token, p.Reason, p.LastError, p.ErrorType, p.Deliveries)
	}
}

// checkContent compares the fields that never change.
func (v *crashResult) checkContent(model *crashModel, token int, m *driver.Message) {
	i := &model.messages[token]
	switch {
	case !bytes.Equal(m.Body, i.out.Body):
		v.addf("queue %s: message %d has a wrong body of %d bytes instead of %d", model.name, token, len(m.Body), len(i.out.Body))
	case i.id != "" && m.ID != i.id:
		v.addf("queue %s: message %d has id %s instead of %s", model.name, token, m.ID, i.id)
	case m.Group != i.out.Group || m.ReplyTo != i.out.ReplyTo || m.CorrelationID != i.out.CorrelationID || !maps.Equal(m.Attributes, i.out.Attributes):
		v.addf("queue %s: message %d has other properties: %q, %q, %q, %q",
			model.name, token, m.Group, m.ReplyTo, m.CorrelationID, m.Attributes)
	case m.Priority != i.out.Priority && !i.prioritized:
		v.addf("queue %s: message %d has priority %d instead of %d", model.name, token, m.Priority, i.out.Priority)
	}
}

// checkUse compares the later results of the queue with the content that was found.
func (v *crashResult) checkUse(model *crashModel, c *crashContent, finds []crashFound) {
	for n, token := range c.repeated {
		if n < len(c.repeats) {
			v.checkRepeat(model, token, finds[token], c.repeats[n])
		}
	}
	received := make(map[int]bool)
	for _, round := range append(c.drained, c.redriven) {
		for n := range round {
			token, ok := tokenOf(&round[n].Message, model)
			switch {
			case !ok:
				v.addf("queue %s: received %s, which was never sent", model.name, round[n].ID)
				continue
			case received[token]:
				v.addf("queue %s: message %d came twice", model.name, token)
			case finds[token].state == isAbsent:
				v.back++
				v.addf("queue %s: received message %d, which was not there", model.name, token)
			}
			received[token] = true
			v.checkContent(model, token, &round[n].Message)
		}
	}
	for _, round := range c.drained {
		v.checkOrder(model, round)
	}
	v.checkRest(model, c, finds, received)
}

// checkRepeat checks that a dedup key is remembered or forgotten together with its message.
func (v *crashResult) checkRepeat(model *crashModel, token int, find crashFound, answer driver.Sent) {
	i := &model.messages[token]
	known := i.id
	if known == "" {
		known = find.id
	}
	// If a message came and went unseen, its key may exist without it.
	unseen := i.changed > 0 || model.pending[opPurge] > 0 || model.config.RetainDead != (driver.Retention{}) || model.config.DropExpired
	switch {
	case i.unsent && find.state == isAbsent && unseen:
	case i.unsent && find.state == isAbsent:
		if answer.Duplicate {
			v.addf("queue %s: message %d is not there, but its key is", model.name, token)
		}
	case !answer.Duplicate || answer.ID != known:
		v.lost++
		v.addf("queue %s: a repeated send of message %d (%s) is answered with %+v", model.name, token, known, answer)
	}
}

// checkRest checks that no message vanished while the queue was drained.
func (v *crashResult) checkRest(model *crashModel, c *crashContent, finds []crashFound, received map[int]bool) {
	if c.left.Waiting() != 0 || c.left.Dead != len(c.leftDead) {
		v.addf("queue %s: after it was drained there are %+v, and %d dead letters", model.name, c.left, len(c.leftDead))
	}
	dead := make(map[int]bool)
	for n := range c.leftDead {
		token, ok := tokenOf(&c.leftDead[n].Message, model)
		if !ok || dead[token] || finds[token].state == isAbsent {
			v.addf("queue %s: dead letter %s came from nowhere", model.name, c.leftDead[n].ID)
			continue
		}
		dead[token] = true
		v.checkContent(model, token, &c.leftDead[n].Message)
	}
	if model.config.RetainDead != (driver.Retention{}) || model.config.DeadLetterTo != "" || model.config.DropExpired {
		return // dead letters are forwarded, and some messages are dropped
	}
	for token := range finds {
		if finds[token].state != isAbsent && !received[token] && !dead[token] {
			v.lost++
			v.addf("queue %s: message %d was %v, and then neither received nor dead", model.name, token, finds[token].state)
		}
	}
	if c.redriven != nil && len(c.redriven) != len(c.leftDead) {
		v.lost++
		v.addf("queue %s: %d dead letters were redriven, %d were received", model.name, len(c.leftDead), len(c.redriven))
	}
}

// checkOrder checks that messages that were ready together came in the order of their places,
// within their shard or group.
func (v *crashResult) checkOrder(model *crashModel, round []driver.Delivery) {
	type latest struct{ began, token, batch, position int64 }
	lines := make(map[string]latest)
	for n := range round {
		token, ok := tokenOf(&round[n].Message, model)
		if !ok {
			continue
		}
		i := &model.messages[token]
		line := ""
		if model.config.Shards > 1 || model.config.StrictGroups || model.config.FairGroups {
			line = round[n].Group
		}
		if model.prioritizes() {
			line = fmt.Sprint("priority ", round[n].Priority)
		}
		if model.placeUnknown(i) || model.config.Shards > 1 && line == "" {
			continue // its place or its shard is unknown
		}
		before, seen := lines[line]
		overtaken := i.place.to < before.began
		inBatch := i.place.from == before.batch && i.place.position >= 0 && int64(i.place.position) < before.position
		if seen && (overtaken || inBatch) {
			v.addf("queue %s: message %d came before message %d, which is ahead of it", model.name, before.token, token)
			return
		}
		if !seen || i.place.from >= before.began {
			lines[line] = latest{i.place.from, int64(token), i.place.from, int64(i.place.position)}
		}
	}
}

// precursors returns the states from which time alone leads to state. A transition by time that
// was not stored yet can be undone by another crash.
func (b *crashModel) precursors(state stateSet) stateSet {
	mortal := b.config.MaxDeliveries > 0 || b.config.RetainReady != (driver.Retention{}) || b.config.TTL > 0
	switch {
	case state == isDead && mortal:
		return isWaiting
	case state == isAbsent && b.config.RetainDead != (driver.Retention{}):
		return isWaiting | isDead
	case state == isAbsent && b.config.DropExpired:
		return isWaiting
	}
	return 0
}

// A crashFound is a message as it was found.
type crashFound struct {
	state      stateSet
	id         string
	deliveries int
	redrives   int
	lastError  string
}
