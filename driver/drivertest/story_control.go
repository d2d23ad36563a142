package drivertest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/story"
)

// The operations of stories on what is around a queue: receives that wait, handles, the list of
// queues, and observers of endings.
type (
	// waitOperation starts receives of up to max messages, which wait for as long as they may.
	waitOperation struct{ max, receivers int }
	// wokenOperation prints what the receives that have waited longest get. The command before
	// must have ended their wait, or the time at, counted from the mark, unless it is 0.
	wokenOperation struct {
		receivers int
		at        time.Duration
		brief     bool // see receiveOperation
	}
	// clockOperation sets the wall clock of the backend ahead of ours.
	clockOperation  struct{ ahead time.Duration }
	deleteOperation struct{}
	// openOperation opens the queue again.
	openOperation   struct{}
	closeOperation  struct{}
	queuesOperation struct{}
	// cycleOperation receives one message and gives it back, many times. It prints the
	// deliveries that differ from the one before.
	cycleOperation struct {
		how   driver.NackMode
		times int
	}
	// observeOperation begins to observe endings, and endingsOperation prints those since then.
	observeOperation struct{}
	endingsOperation struct{}
)

var controlVerbs = map[string]func(a *arguments) operation{
	"wait":    func(a *arguments) operation { return waitOperation{a.count(), max(a.number("receivers"), 1)} },
	"woken":   func(a *arguments) operation { return wokenOperation{a.count(), a.duration("at", 0), a.yes("brief")} },
	"clock":   parseClock,
	"delete":  func(a *arguments) operation { a.none(); return deleteOperation{} },
	"open":    func(a *arguments) operation { a.none(); return openOperation{} },
	"close":   func(a *arguments) operation { a.none(); return closeOperation{} },
	"queues":  func(a *arguments) operation { a.none(); return queuesOperation{} },
	"observe": func(a *arguments) operation { a.none(); return observeOperation{} },
	"endings": func(a *arguments) operation { a.none(); return endingsOperation{} },
}

func parseCycle(a *arguments) operation {
	op := cycleOperation{times: a.number("times")}
	for mode, verb := range nackVerbs {
		if slices.Equal(a.words, []string{verb}) {
			op.how = mode
			return op
		}
	}
	a.fail(errors.New("want nack, release or put-back"))
	return op
}

func parseClock(a *arguments) operation {
	ahead, err := a.names.parse(strings.Join(a.words, " "))
	if err != nil {
		a.fail(err)
	}
	return clockOperation{ahead}
}

// count returns the only word as a number, 1 if there is none.
func (a *arguments) count() int {
	if len(a.words) == 0 {
		return 1
	}
	n, err := strconv.Atoi(strings.Join(a.words, " "))
	if err != nil || n < 1 {
		a.fail(fmt.Errorf("%q is not a number from 1", a.words))
	}
	return n
}

func (o waitOperation) String() string {
	return command("wait", []string{strconv.Itoa(o.max)}, numberOption("receivers", o.receivers))
}

func (o wokenOperation) String() string {
	return command("woken", []string{strconv.Itoa(o.receivers)}, timeOption("at", o.at), boolOption("brief", o.brief))
}

func (o clockOperation) String() string { return command("clock", []string{o.ahead.String()}) }
func (deleteOperation) String() string  { return "delete" }
func (openOperation) String() string    { return "open" }
func (closeOperation) String() string   { return "close" }
func (queuesOperation) String() string  { return "queues" }
func (o cycleOperation) String() string {
	return command("cycle", []string{nackVerbs[o.how]}, numberOption("times", o.times))
}
func (observeOperation) String() string { return "observe" }
func (endingsOperation) String() string { return "endings" }

func (o waitOperation) run(ctx context.Context, p *executor) (r result) {
	for range o.receivers {
		p.story.waiting = append(p.story.waiting, p.story.env.receiveInBackground(ctx, p.queue, o.max))
	}
	return r
}

func (o wokenOperation) run(_ context.Context, p *executor) (r result) {
	e := p.story.env
	if len(p.story.waiting) < o.receivers {
		e.failf("%d receives wait, want %d", len(p.story.waiting), o.receivers)
	}
	due := p.story.acted
	if o.at != 0 {
		due = p.story.mark.Add(o.at)
		e.sleep(time.Until(due))
	}
	var labels []string
	for _, waiting := range p.story.waiting[:o.receivers] {
		got := e.await(waiting, "the command before")
		e.expectTime(got.at, due, "the end of the wait")
		if _, isBatch := errors.AsType[*driver.BatchError](got.err); isBatch || got.err != nil {
			labels = append(labels, cmp.Or(map[bool]string{true: "a batch error"}[isBatch], verdict(got.err)))
		} else if len(got.deliveries) == 0 {
			labels = append(labels, "nothing")
		}
		for i := range got.deliveries {
			label := p.take(&got.deliveries[i])
			if o.brief {
				label = story.Quote(p.story.sent[got.deliveries[i].ID].name)
			}
			labels = append(labels, label)
		}
	}
	p.story.waiting = p.story.waiting[o.receivers:]
	if o.receivers > 1 { // any of them may be first
		slices.SortStableFunc(labels, func(a, b string) int { return p.story.position(a) - p.story.position(b) })
	}
	r.addf("%s", strings.Join(labels, " "))
	return r
}

func (o clockOperation) run(_ context.Context, p *executor) (r result) {
	p.story.env.setWall(o.ahead)
	return r
}

func (deleteOperation) run(ctx context.Context, p *executor) (r result) {
	err := p.story.env.opener.(driver.Admin).DeleteQueue(ctx, cmp.Or(p.in, queueName))
	if err != nil {
		r.addf("%s", verdict(err))
	}
	return r
}

func (openOperation) run(_ context.Context, p *executor) (r result) {
	if p.in == "" {
		p.queue = p.story.env.open(queueName)
	} else {
		p.story.queues[p.in] = p.story.env.open(p.in)
	}
	return r
}

func (closeOperation) run(_ context.Context, p *executor) (r result) {
	p.story.env.ok(p.queue.Close(), "close")
	return r
}

func (queuesOperation) run(ctx context.Context, p *executor) (r result) {
	for range p.story.env.opener.(driver.Admin).Queues(ctx) {
		break // a list may be abandoned
	}
	r.addf("%s", cmp.Or(strings.Join(p.story.env.queues(), " "), "none"))
	return r
}

func (o cycleOperation) run(ctx context.Context, p *executor) (r result) {
	var labels []string
	for range o.times {
		got := p.story.env.receive(p.queue, 1)
		labels = append(labels, p.take(&got[0]))
		given := nackOperation{deliveries: []string{p.story.sent[got[0].ID].name}, mode: o.how}.run(ctx, p)
		if given.text != "" {
			return given
		}
	}
	r.addf("%s", strings.Join(slices.Compact(labels), " "))
	return r
}

// endings collects the endings that an observer gets.
type endings struct {
	mu  sync.Mutex // guards got
	got []driver.Ending
}

func (e *env) observe() (observed *endings, stop func()) {
	observed = new(endings)
	stop = e.opener.(driver.Observable).Observe(func(ending driver.Ending) {
		observed.mu.Lock()
		defer observed.mu.Unlock()
		observed.got = append(observed.got, ending)
	})
	return observed, stop
}

// take returns the endings since its last call.
func (e *endings) take() []driver.Ending {
	e.mu.Lock()
	defer e.mu.Unlock()
	got := e.got
	e.got = nil
	return got
}

func (observeOperation) run(_ context.Context, p *executor) (r result) {
	observed, stop := p.story.env.observe()
	p.story.env.t.Cleanup(stop)
	p.story.endings = observed
	return r
}

func (endingsOperation) run(_ context.Context, p *executor) (r result) {
	if e := p.story.env; !e.backend.Virtual {
		e.rest(e.unit / 4) // another goroutine of the backend may have ended a message, and tells of it when a server has answered
	}
	var labels []string
	for _, ending := range p.story.endings.take() {
		label := fmt.Sprintf("%s=%s(%s)", ending.Kind, story.Quote(p.story.sent[ending.ID].name), ending.Reason)
		if ending.Deliveries != 1 {
			label += fmt.Sprintf("#%d", ending.Deliveries)
		}
		if ending.LastError != "" {
			label += ":" + story.Quote(ending.LastError)
		}
		if ending.Queue != queueName || ending.Count != 1 {
			label += fmt.Sprintf("!queue=%s,count=%d", ending.Queue, ending.Count)
		}
		labels = append(labels, label)
	}
	r.addf("%s", cmp.Or(strings.Join(labels, " "), "none"))
	return r
}
