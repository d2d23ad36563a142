package drivertest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/queuemodel"
)

// A plan is a random program together with the results of the model, operation by operation.
type plan struct {
	program
	want []result
}

// GoString keeps rapid's log of a drawn value to one line; the failure itself prints the
// program.
func (p *plan) GoString() string { return fmt.Sprintf("a program of %d operations", len(p.Operations)) }

// An ability is what random programs can use of a backend.
type ability struct {
	traits   driver.Traits
	admin    bool
	drop     bool // Config.DropExpired
	fair     bool // Config.FairGroups
	limits   bool // Config.GroupLimits
	oneGroup bool // strict queues get messages of one group
	untimed  bool
	crashes  []Crash
}

// A planner draws programs. It runs each operation on a model as soon as it is drawn, so that
// the next one can depend on the state: receipts that are valid or have just expired, messages
// that are dead, deadlines to meet exactly.
type planner struct {
	ability
	model    *queuemodel.Model
	other    *queuemodel.Model // nil if messages do not move
	executor *executor
	now      time.Duration
	config   driver.Config
	plan     *plan
	stored   bool // the last operation was a successful send
}

// plans generates programs for backends with an ability.
func plans(a ability) *rapid.Generator[*plan] {
	return rapid.Custom(func(t *rapid.T) *plan {
		g := newPlanner(t, a)
		for len(g.plan.Operations) < maxOperations {
			if !step(g).Draw(t, "step") {
				break
			}
		}
		return g.plan
	})
}

const maxOperations = 200

func newPlanner(t *rapid.T, a ability) *planner {
	g := &planner{ability: a, plan: &plan{}}
	if a.admin {
		g.config = drawConfig(t, a)
	}
	g.plan.Config, g.plan.Untimed = g.config, a.untimed
	a.traits.GroupLimits = a.limits
	g.model = queuemodel.New(randomQueueName, a.traits, g.config, queuemodel.Start)
	queue := &queuemodel.Queue{
		Model: g.model,
		Clock: func() time.Duration { return g.now },
		Sleep: func(_ context.Context, d time.Duration) error { g.now += d; return nil },
	}
	g.executor = newExecutor(randomQueueName, queue, queuemodel.Start)
	g.executor.untimed = a.untimed
	g.executor.clock = queue.Clock
	g.executor.advance = func(d time.Duration) { g.now += d }
	g.executor.configure = queue.Configure
	if a.traits.Move && a.admin {
		g.addOther(t, queue)
	}
	return g
}

// addOther adds a queue that messages move to and from.
func (g *planner) addOther(t *rapid.T, queue *queuemodel.Queue) {
	config := driver.Config{MaxMessages: pick(t, 0, 0, 2, 5)}
	if g.traits.Groups {
		config.StrictGroups = rarely(t, 1)
		config.FairGroups = g.fair && !config.StrictGroups && rarely(t, 1)
	}
	g.plan.Other = &config
	g.other = queuemodel.New(otherName(randomQueueName), g.traits, config, queuemodel.Start)
	other := &queuemodel.Queue{Model: g.other, Clock: queue.Clock, Sleep: queue.Sleep}
	find := func(name string) *queuemodel.Queue {
		return map[string]*queuemodel.Queue{randomQueueName: queue, otherName(randomQueueName): other}[name]
	}
	queue.Find, other.Find = find, find
	g.executor.other = other
}

// step draws one more operation and runs it on the model; false ends the program. Each step is
// a value of its own to rapid, so that it can remove steps to shorten a program.
func step(g *planner) *rapid.Generator[bool] {
	return rapid.Custom(func(t *rapid.T) bool {
		// One in 128. Coins, because rapid prefers small numbers, and all tails, because it
		// sets bits to zero to shorten a program.
		if !coins(t, 7) {
			return false
		}
		op, sent := g.draw(t), len(g.executor.ids)
		if g.untimed {
			g.now++ // what gets its age from one operation is younger than what got it before
		}
		g.plan.Operations = append(g.plan.Operations, op)
		g.plan.want = append(g.plan.want, g.executor.run(t.Context(), op))
		g.stored = len(g.executor.ids) > sent
		return true
	})
}

// draw chooses the next operation.
func (g *planner) draw(t *rapid.T) operation {
	choices := []func(*rapid.T) operation{
		g.send, g.receive, g.send, g.receive, g.send, g.receive,
		g.ack, g.nack, g.ack, g.nack, g.extend, g.extend, g.purge,
	}
	if !g.untimed {
		choices = append(choices, g.advance, g.advance, g.advance, g.advance)
	}
	if g.traits.DeadLetters {
		choices = append(choices, g.deadLetter, g.deadLetter, g.redrive, g.redrive, g.discard, g.listDead)
	}
	if g.traits.Peek {
		choices = append(choices, g.look)
	}
	if g.traits.LateAck {
		choices = append(choices, g.ackLate, g.ackLate, g.extendLate)
	}
	if g.other != nil {
		choices = append(choices, g.moveAway, g.moveBack)
	}
	if g.traits.Pause {
		choices = append(choices, g.pause)
	}
	if g.model.Traits.GroupLimits {
		choices = append(choices, g.throttle)
	}
	if g.traits.Schedules {
		choices = append(choices, g.fire, g.fire)
	}
	if g.traits.Edit {
		choices = append(choices, g.edit, g.edit)
	}
	if g.model.Paused { // not for long: a paused queue delivers nothing
		choices = append(choices, g.resume, g.resume, g.resume, g.resume)
	}
	if g.admin {
		choices = append(choices, g.configure)
	}
	if len(g.crashes) > 0 {
		choices = append(choices, g.restart)
	}
	return pick(t, choices...)(t)
}

func (g *planner) send(t *rapid.T) operation {
	var op sendOperation
	replaces := false
	for range upTo(t, 4) {
		msg := g.message(t)
		msg.Replace = msg.Replace && !replaces // two of one call have the same age, and either may expire first
		replaces = replaces || msg.Replace
		named := outgoing{name: string(msg.Body), Outgoing: msg}
		if g.traits.DeliverAt && rarely(t, 3) {
			named.ahead = g.ahead(t)
			if !rarely(t, 6) { // both together are refused
				named.Delay = 0
			}
		}
		op.messages = append(op.messages, named)
	}
	return op
}

func (g *planner) message(t *rapid.T) driver.Outgoing {
	msg := driver.Outgoing{Body: []byte(strings.Repeat(pick(t, "a", "b", "c"), upTo(t, 12)-1))}
	switch {
	case !g.traits.Groups:
	case g.oneGroup && g.config.StrictGroups:
		msg.Group = "g1"
	default:
		msg.Group = pick(t, "", "g1", "g2", "g3")
	}
	if g.traits.DedupWindow > 0 && rarely(t, 2) {
		msg.DedupKey = pick(t, "k1", "k2", "k3", "k4")
		msg.Body = []byte(pick(t, "a", "a", "a", "b"))
	}
	if rarely(t, 2) {
		msg.Delay = g.duration(t)
	}
	if rarely(t, 3) {
		msg.Attributes = map[string]string{"colour": pick(t, "red", "blue")}
	}
	if rarely(t, 4) {
		msg.ReplyTo, msg.CorrelationID = "answers", "c1"
	}
	if rarely(t, 5) {
		msg.Delay = g.traits.MaxDelay + time.Second
	}
	if g.traits.TTL && rarely(t, 2) {
		msg.TTL = g.life(t)
	}
	if g.traits.Priorities && rarely(t, 1) {
		msg.Priority = g.priority(t)
	}
	if g.traits.UniqueKeys && rarely(t, 1) {
		msg.UniqueKey = pick(t, "u1", "u2", "u3")
		msg.Replace = rarely(t, 1)
	}
	return msg
}

// duration returns a delay or a visibility. There are few of them, so that many events are due
// together.
func (g *planner) duration(t *rapid.T) time.Duration {
	if g.untimed {
		return pick(t, 0, 10*time.Minute)
	}
	return pick[time.Duration](t, 0, 1, 2, 3, 5, 10, 60, 90) * time.Second
}

// life returns a time to live; it may be too long.
func (g *planner) life(t *rapid.T) time.Duration {
	switch {
	case rarely(t, 6):
		return driver.MaxTTL + time.Hour
	case g.untimed:
		return time.Hour
	}
	return pick[time.Duration](t, 1, 2, 3, 5, 10, 60) * time.Second
}

// priority returns a priority; it may be too high.
func (g *planner) priority(t *rapid.T) int { return pick(t, 0, 1, 2, 3, 9, 9, driver.MaxPriority+1) }

// ahead returns how far a due time is ahead; it may be past, or too far.
func (g *planner) ahead(t *rapid.T) time.Duration {
	switch {
	case rarely(t, 6):
		return g.traits.MaxDelay + time.Hour
	case rarely(t, 4):
		return -time.Second
	}
	return cmp.Or(g.duration(t), -time.Hour)
}

func (g *planner) receive(t *rapid.T) operation {
	request := driver.ReceiveRequest{Max: pick(t, 1, 2, 3, 10, 1000), Visibility: g.duration(t)}
	if rarely(t, 2) {
		request.MaxBytes = upTo(t, 20)
	}
	if rarely(t, 6) {
		request.Max = 0
	}
	// At the in-flight ceiling a waiting receive may or may not check again for messages that
	// can only die.
	quiet := g.model.Config.MaxInFlight == 0 || (g.model.Config.MaxDeliveries == 0 && (g.model.Config.MaxDead == 0 || !g.traits.TTL))
	if !g.untimed && quiet && rarely(t, 2) {
		// A wait must not end at the very moment of another event: either order would be right.
		request.Wait = g.duration(t) + time.Microsecond
		for slices.Contains(g.model.EventTimes(), g.now+request.Wait) {
			request.Wait += time.Microsecond
		}
	}
	return receiveOperation{request: request}
}

// deliveries returns receipts to use, most of them valid; numbers returns their numbers.
func (g *planner) deliveries(t *rapid.T) []string { return references(g.numbers(t)) }

func (g *planner) numbers(t *rapid.T) []deliveryNumber {
	var good []deliveryNumber
	for i, receipt := range g.executor.receipts {
		if g.model.Held(receipt) != nil {
			good = append(good, deliveryNumber(i+1))
		}
	}
	numbers := make([]deliveryNumber, upTo(t, 3))
	for i := range numbers {
		all := len(g.executor.receipts)
		switch {
		case len(good) > 0 && coins(t, 3):
			numbers[i] = pick(t, good...)
		case all > 0 && coins(t, 3):
			numbers[i] = deliveryNumber(all + 1 - upTo(t, all)) // prefer recent deliveries
		case all > 0:
			numbers[i] = deliveryNumber(-upTo(t, all))
		}
	}
	return numbers
}

func (g *planner) ack(t *rapid.T) operation { return ackOperation{g.deliveries(t)} }

// ackLate and extendLate use receipts that are mostly late, and valid for these calls.
func (g *planner) ackLate(t *rapid.T) operation { return lateAckOperation{g.lateDeliveries(t)} }

func (g *planner) extendLate(t *rapid.T) operation {
	return extendOperation{deliveries: g.lateDeliveries(t), visibility: g.duration(t), late: true}
}

func (g *planner) lateDeliveries(t *rapid.T) []string {
	numbers := g.numbers(t)
	var late []deliveryNumber
	for i, receipt := range g.executor.receipts {
		if g.model.Held(receipt) == nil && g.model.Delivered(receipt) != nil {
			late = append(late, deliveryNumber(i+1))
		}
	}
	for i := range numbers {
		if len(late) > 0 && coins(t, 2) {
			numbers[i] = pick(t, late...)
		}
	}
	return references(numbers)
}

func (g *planner) moveAway(t *rapid.T) operation {
	return moveOperation{to: otherQueue, limit: upTo(t, 4) - 1}
}

// moveBack moves messages back if there are any, and otherwise away.
func (g *planner) moveBack(t *rapid.T) operation {
	if len(g.other.Waiting) == 0 {
		return g.moveAway(t)
	}
	return inOperation{otherQueue, moveOperation{to: thisQueue, limit: upTo(t, 4) - 1}}
}

func (g *planner) nack(t *rapid.T) operation {
	op := nackOperation{deliveries: g.deliveries(t), delay: g.duration(t), cause: pick(t, "", "oops", "no")}
	if g.traits.Release {
		op.mode = pick(t, driver.NackFailed, driver.NackFailed, driver.NackRelease, driver.NackPutBack)
	}
	return op
}

func (g *planner) extend(t *rapid.T) operation {
	return extendOperation{deliveries: g.deliveries(t), visibility: g.duration(t)}
}

func (g *planner) deadLetter(t *rapid.T) operation {
	return deadLetterOperation{deliveries: g.deliveries(t), request: driver.DeadLetterRequest{
		Reason:    pick(t, driver.ReasonFatal, driver.ReasonParse, driver.ReasonOperator, driver.Reason("boredom")),
		Error:     pick(t, "", "broken"),
		ErrorType: pick(t, "", "*json.SyntaxError"),
	}}
}

// letters returns messages, most of them dead.
func (g *planner) letters(t *rapid.T) []string {
	numbers := make([]messageNumber, upTo(t, 3)-1)
	for i := range numbers {
		switch {
		case len(g.model.Dead) > 0 && coins(t, 2):
			numbers[i] = g.executor.number(pick(t, g.model.Dead...).ID)
		case len(g.executor.ids) > 0 && coins(t, 2):
			numbers[i] = messageNumber(upTo(t, len(g.executor.ids)))
		default:
			numbers[i] = unknownMessage
		}
	}
	return references(numbers)
}

func (g *planner) redrive(t *rapid.T) operation {
	op := redriveOperation{limit: upTo(t, 3) - 1}
	if rarely(t, 1) {
		op.messages = g.letters(t)
	}
	return op
}

func (g *planner) discard(t *rapid.T) operation { return discardOperation{g.letters(t)} }

func (g *planner) purge(t *rapid.T) operation {
	switch {
	case !rarely(t, 2):
		return g.receive(t) // purges would leave few messages
	case g.traits.DeadLetters && rarely(t, 1):
		return purgeDeadOperation{}
	}
	return purgeOperation{}
}

// edit changes a message, most often one that waits.
func (g *planner) edit(t *rapid.T) operation {
	var op editOperation
	switch {
	case len(g.model.Waiting) > 0 && coins(t, 3):
		op.message = g.executor.number(pick(t, g.model.Waiting...).ID).String()
	case len(g.executor.ids) > 0 && coins(t, 2):
		op.message = messageNumber(upTo(t, len(g.executor.ids))).String()
	default:
		op.message = unknownMessage.String()
	}
	changes := []string{"remove", "ready", "due", "due", "both"}
	if g.traits.Priorities {
		changes = append(changes, "priority", "priority")
	}
	switch pick(t, changes...) {
	case "priority":
		op.edit = driver.Edit{Prioritize: true, Priority: g.priority(t)}
	case "remove":
		op.edit.Remove = true
	case "ready":
		op.edit.Ready = true
	case "due":
		op.ahead = g.ahead(t)
	default: // refused
		op.edit.Remove, op.ahead = true, time.Second
	}
	return op
}

func (g *planner) listDead(*rapid.T) operation { return listDeadOperation{} }

func (g *planner) look(t *rapid.T) operation {
	var op peekOperation
	if rarely(t, 2) {
		op.message = messageNumber(upTo(t, len(g.executor.ids)+1)).String()
	}
	if rarely(t, 1) {
		op.query.States = []driver.State{pick(t, driver.StateReady, driver.StateDelayed, driver.StateInFlight, driver.StateDead)}
	}
	if rarely(t, 2) {
		op.query.Attributes = map[string]string{"colour": pick(t, "red", "blue")}
	}
	if rarely(t, 2) && !g.untimed {
		op.query.OlderThan = g.duration(t) + 500*time.Nanosecond // never exactly the age of a message
	}
	if rarely(t, 2) && g.traits.DeadLetters {
		op.query.Reason = pick(t, driver.ReasonMaxDeliveries, driver.ReasonExpired, driver.ReasonFatal)
	}
	ordered := len(op.query.States) > 0 && (op.query.States[0] == driver.StateReady || op.query.States[0] == driver.StateDead)
	if rarely(t, 1) && ordered { // without an order a limit could split a tie
		op.query.Limit = upTo(t, 3)
	}
	return op
}

// advance lets time pass, most often exactly up to the next event. A backend that is down at
// that time expires messages by age and by count when it is up again, not in the order of time:
// where that matters, the time passes before the restart.
func (g *planner) advance(t *rapid.T) operation {
	op := advanceOperation{unseen: rarely(t, 1)}
	if len(g.crashes) > 0 && g.config.RetainReady != (driver.Retention{}) {
		op.unseen = false
	}
	next, ok := g.model.NextEvent()
	if ok && coins(t, 2) {
		op.by = max(0, next-g.now+pick(t, 0, 0, 0, -time.Nanosecond, time.Nanosecond))
	} else {
		op.by = g.duration(t)
	}
	return op
}
