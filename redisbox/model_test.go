package redisbox

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/queuemodel"
	"github.com/mailboxmq/mailbox/internal/testing/redistest"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
)

// Random programs in which time passes, on a server whose clock is set ahead instead of
// waiting. Delays and visibilities are multiples of unit, and a program takes much less
// than that, so that deadlines do not depend on how fast it runs.
const unit = 30 * time.Second

func TestAgreesWithTheModelAsTimePasses(t *testing.T) {
	t.Parallel()
	server := redistest.Standalone(t, redistest.ClockSkew(0))
	b := open(t, connect(t, server.ClientOption()), nil)
	var passed time.Duration
	for n := range volume.Count(t, 40, 10_000) {
		seed := rand.Uint64()
		if n < len(oldSeeds) {
			seed = oldSeeds[n]
		}
		d := &comparison{
			t: t, random: rand.New(rand.NewPCG(seed, 0)), server: server, backend: b, passed: &passed,
			name: fmt.Sprint("program-", n), numbers: make(map[string]string),
		}
		if !d.run(stepsOfProgram) {
			t.Fatalf("seed %d, program:\n%s", seed, strings.Join(d.log, "\n"))
		}
	}
}

// oldSeeds are those of programs that have told a queue from the model.
var oldSeeds = []uint64{
	7479102007042102063,  // a group loses its only message and gets another in the same send
	5324459329486270809,  // retention by count makes room for dead letters while the limit is reached
	14744911452465648603, // retention removes a dead letter by age before one by count
}

const stepsOfProgram = 100

// A comparison runs one program on a queue and on the model, and compares the results.
type comparison struct {
	t       *testing.T
	random  *rand.Rand
	server  *redistest.Server
	backend *Backend
	name    string
	queue   *handle
	model   *queuemodel.Model
	start   time.Time
	began   time.Duration // how far the clock was ahead at the start
	passed  *time.Duration
	config  driver.Config

	numbers map[string]string // of messages, by their ids in the queue and the model
	ids     [][2]string       // of all messages, in the model and the queue
	sent    int
	held    [][2]driver.Receipt
	log     []string
}

func (d *comparison) now() time.Duration { return time.Since(d.start) + *d.passed - d.began }

func (d *comparison) pick(choices ...int) int { return choices[d.random.IntN(len(choices))] }

func (d *comparison) drawConfig() driver.Config {
	aging := time.Duration(d.pick(1, 2, 5)) * unit
	if d.config.StrictGroups || d.random.IntN(4) == 0 {
		aging = driver.Off
	}
	return driver.Config{
		PriorityAging: aging,
		StrictGroups:  d.config.StrictGroups,
		MaxDeliveries: d.pick(0, 0, 1, 2, 3),
		MaxMessages:   d.pick(0, 0, 0, 4, 8),
		MaxInFlight:   d.pick(0, 0, 0, 2),
		MaxDead:       d.pick(0, 0, 0, 1, 3),
		MaxHold:       time.Duration(d.pick(0, 0, 3, 30)) * unit,
		RetainReady:   driver.Retention{Age: time.Duration(d.pick(0, 0, 3, 8)) * unit, Count: d.pick(0, 0, 0, 3)},
		RetainDead:    driver.Retention{Age: time.Duration(d.pick(0, 0, 3, 8)) * unit, Count: d.pick(0, 0, 0, 2)},
		DedupWindow:   4 * unit,
		TTL:           time.Duration(d.pick(0, 0, 0, 4)) * unit,
	}
}

func (d *comparison) run(steps int) bool {
	d.config.StrictGroups = d.random.IntN(2) == 0
	d.config = d.drawConfig()
	ctx := d.t.Context()
	if err := d.backend.ConfigureQueue(ctx, d.name, d.config.Effective()); err != nil {
		d.t.Fatal(err)
	}
	q, err := d.backend.OpenQueue(ctx, d.name)
	if err != nil {
		d.t.Fatal(err)
	}
	defer q.Close()
	d.queue = q.(*handle)
	d.start, d.began = time.Now(), *d.passed
	d.model = queuemodel.New(d.name, q.Traits(), d.config, d.start)
	d.log = append(d.log, fmt.Sprintf("configure %+v", d.config))
	for range steps {
		what, model, redis := d.step()
		stats, err := d.queue.Stats(ctx)
		if err != nil {
			d.t.Fatal(err)
		}
		model += fmt.Sprintf(" %+v", d.model.Stats(d.now()))
		redis += fmt.Sprintf(" %+v", stats)
		d.log = append(d.log, what+" =>"+redis)
		if model != redis {
			d.log = append(d.log, "the model says:"+model)
			return false
		}
	}
	return d.backend.DeleteQueue(ctx, d.name) == nil
}

// step performs one operation on both, and returns its description and both results.
func (d *comparison) step() (what, model, redis string) {
	switch d.random.IntN(16) {
	case 0, 1, 2:
		return d.send()
	case 3, 4, 5:
		return d.receive()
	case 6, 7, 8, 9:
		return d.settle()
	case 10:
		return d.redrive()
	case 11:
		return d.list()
	case 12, 13:
		return d.edit()
	case 14:
		if d.random.IntN(4) == 0 {
			d.config = d.drawConfig()
			err := d.backend.ConfigureQueue(d.t.Context(), d.name, d.config.Effective())
			d.model.Configure(d.now(), d.config)
			return fmt.Sprintf("configure %+v", d.config), "ok", outcomeOf(err)
		}
	}
	by := time.Duration(1+d.random.IntN(4)) * unit
	*d.passed += by
	if err := d.server.SetClockSkew(*d.passed); err != nil {
		d.t.Fatal(err)
	}
	return fmt.Sprintf("let %v pass", by), "ok", "ok"
}

func (d *comparison) send() (what, model, redis string) {
	msgs := make([]driver.Outgoing, 1+d.random.IntN(3))
	for i := range msgs {
		msgs[i] = driver.Outgoing{
			Body: []byte("body"), Delay: time.Duration(d.pick(0, 0, 0, 1, 2, 5)) * unit,
			TTL:   time.Duration(d.pick(0, 0, 0, 1, 2, 6)) * unit,
			Group: fmt.Sprint("g", d.random.IntN(3)), DedupKey: []string{"", "", "", "k1", "k2"}[d.random.IntN(5)],
		}
	}
	if !d.config.StrictGroups {
		for i := range msgs {
			msgs[i].Priority = d.pick(0, 0, 0, 1, 2, 5, 9)
		}
	}
	want, wantErr := d.model.Send(d.now(), msgs)
	got, err := d.queue.Send(d.t.Context(), msgs)
	for i := range msgs {
		d.sent++
		if driver.At(err, i) == nil && driver.At(wantErr, i) == nil && !got[i].Duplicate && !want[i].Duplicate {
			d.numbers[got[i].ID], d.numbers[want[i].ID] = fmt.Sprint("m", d.sent), fmt.Sprint("m", d.sent)
			d.ids = append(d.ids, [2]string{want[i].ID, got[i].ID})
		}
		model += " " + outcome(d.numbers, want, wantErr, i)
		redis += " " + outcome(d.numbers, got, err, i)
	}
	return fmt.Sprintf("send %+v", msgs), model, redis
}

func outcome(numbers map[string]string, sent []driver.Sent, err error, i int) string {
	if failed := driver.At(err, i); failed != nil {
		return outcomeOf(failed)
	}
	return fmt.Sprint(numbers[sent[i].ID], sent[i].Duplicate)
}

func outcomeOf(err error) string {
	if e, ok := errors.AsType[*driver.Error](err); ok {
		return string(e.Code)
	}
	if err != nil {
		return err.Error()
	}
	return "ok"
}

func (d *comparison) describe(m driver.Message) string {
	return fmt.Sprintf(" %s delivery %d priority %d %q", d.numbers[m.ID], m.Deliveries, m.Priority, m.LastError)
}

func (d *comparison) receive() (what, model, redis string) {
	req := driver.ReceiveRequest{Max: d.pick(1, 2, 10), Visibility: time.Duration(d.pick(0, 1, 1, 2, 5)) * unit}
	want, wantErr := d.model.Receive(d.now(), req)
	got, err := d.queue.Receive(d.t.Context(), req)
	for i := range want {
		model += d.describe(want[i].Message)
		if i < len(got) {
			d.held = append(d.held, [2]driver.Receipt{want[i].Receipt, got[i].Receipt})
		}
	}
	for i := range got {
		redis += d.describe(got[i].Message)
	}
	return fmt.Sprintf("receive %d for %v", req.Max, req.Visibility), model + outcomeOf(wantErr), redis + outcomeOf(err)
}

// settle settles some deliveries, older ones more often.
func (d *comparison) settle() (what, model, redis string) {
	if len(d.held) == 0 {
		return d.receive()
	}
	from := d.random.IntN(len(d.held))
	chosen := d.held[from:min(from+1+d.random.IntN(2), len(d.held))]
	ctx, delay := d.t.Context(), time.Duration(d.pick(0, 0, 1, 3))*unit
	var want, got error
	kind := d.pick(0, 0, 1, 2, 3)
	switch kind {
	case 0:
		var a, b []driver.Receipt
		for _, pair := range chosen {
			a, b = append(a, pair[0]), append(b, pair[1])
		}
		want, got = d.model.Ack(d.now(), a), d.queue.Ack(ctx, b)
	case 1:
		var a, b []driver.Nack
		nack := driver.Nack{Delay: delay, Cause: "why", Mode: driver.NackMode(d.pick(0, 0, 1, 2))}
		for _, pair := range chosen {
			a, b = append(a, nack), append(b, nack)
			a[len(a)-1].Receipt, b[len(b)-1].Receipt = pair[0], pair[1]
		}
		want, got = d.model.Nack(d.now(), a), d.queue.Nack(ctx, b)
	case 2:
		var a, b []driver.Extension
		for _, pair := range chosen {
			a, b = append(a, driver.Extension{Receipt: pair[0], Visibility: delay}), append(b, driver.Extension{Receipt: pair[1], Visibility: delay})
		}
		var grantedModel, grantedRedis []time.Duration
		grantedModel, want = d.model.Extend(d.now(), a)
		grantedRedis, got = d.queue.Extend(ctx, b)
		model, redis = fmt.Sprint(grantedModel), fmt.Sprint(grantedRedis)
	case 3:
		var a, b []driver.DeadLetterRequest
		for _, pair := range chosen {
			a, b = append(a, driver.DeadLetterRequest{Receipt: pair[0], Reason: driver.ReasonFatal}), append(b, driver.DeadLetterRequest{Receipt: pair[1], Reason: driver.ReasonFatal})
		}
		want, got = d.model.DeadLetter(d.now(), a), d.queue.DeadLetter(ctx, b)
	}
	for i := range chosen {
		model += " " + outcomeOf(driver.At(want, i))
		redis += " " + outcomeOf(driver.At(got, i))
	}
	return fmt.Sprintf("%s from delivery %d, %v", []string{"ack", "nack", "extend", "dead-letter"}[kind], from+1, delay), model, redis
}

// edit changes one message, which may be gone.
func (d *comparison) edit() (what, model, redis string) {
	if len(d.ids) == 0 {
		return d.send()
	}
	at := max(len(d.ids)-1-d.random.IntN(8), 0)
	edits := [2]driver.Edit{}
	kind, due, priority := d.random.IntN(5), time.Duration(d.random.IntN(4))*unit, d.pick(0, 1, 5, 9)
	switch {
	case kind == 0:
		edits[0].Remove, edits[1].Remove = true, true
	case kind == 1:
		edits[0].Ready, edits[1].Ready = true, true
	case kind == 2 || d.config.StrictGroups:
		edits[0].DeliverAt = d.start.Add(d.now() + due)
		edits[1].DeliverAt = time.Now().Add(*d.passed + due)
	default:
		edit := driver.Edit{Prioritize: true, Priority: priority}
		edits = [2]driver.Edit{edit, edit}
	}
	want, wantErr := d.model.Edit(d.now(), d.ids[at][0], edits[0])
	got, err := d.queue.Edit(d.t.Context(), d.ids[at][1], edits[1])
	what = fmt.Sprintf("edit %s %d, %v, priority %d", d.numbers[d.ids[at][0]], kind, due, priority)
	return what, string(want) + outcomeOf(wantErr), string(got) + outcomeOf(err)
}

func (d *comparison) redrive() (what, model, redis string) {
	limit := d.random.IntN(3)
	want, wantErr := d.model.Redrive(d.now(), nil, limit)
	got, err := d.queue.Redrive(d.t.Context(), nil, limit)
	return fmt.Sprint("redrive ", limit), fmt.Sprint(want, outcomeOf(wantErr)), fmt.Sprint(got, outcomeOf(err))
}

func (d *comparison) list() (what, model, redis string) {
	for _, dead := range d.model.DeadLetters(d.now()) {
		model += d.describe(dead.Message) + string(dead.Reason)
	}
	for dead, err := range d.queue.DeadLetters(d.t.Context()) {
		redis += d.describe(dead.Message) + string(dead.Reason) + outcomeOf(err)[2:]
	}
	for _, state := range stateOrder[:3] {
		var want, got []string
		for _, seen := range d.model.Peek(d.now(), driver.Query{States: []driver.State{state}}) {
			want = append(want, d.describe(seen.Message))
		}
		for seen, err := range d.queue.Peek(d.t.Context(), driver.Query{States: []driver.State{state}}) {
			got = append(got, d.describe(seen.Message)+outcomeOf(err)[2:])
		}
		if state != driver.StateReady { // messages with the same deadline have no order
			slices.Sort(want)
			slices.Sort(got)
		}
		model += fmt.Sprint(state, want)
		redis += fmt.Sprint(state, got)
	}
	return "list", model, redis
}
