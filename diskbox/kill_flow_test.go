package diskbox

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/history"
)

// What processes that are killed do beside sending and settling: they change single messages,
// replace messages, pause queues and fire schedules.

// killFlow is what a process reports of a queue beside its events.
type killFlow struct {
	// Paused is what a process is about to do, has done, or found when it started.
	Paused *killPause `json:"paused,omitempty"`
	// Fired is the schedule of the queue as a process found it.
	Fired *killFired `json:"fired,omitempty"`
}

type killPause struct {
	Paused  bool `json:"paused"`
	Started bool `json:"started,omitempty"` // not answered yet
	Found   bool `json:"found,omitempty"`
}

type killFired struct {
	Through time.Time `json:"through"`
	ID      string    `json:"id"` // of the latest message
}

const killSchedule = "beat"

// found reports the state of a queue when a process starts, and of its schedule.
func (r *reporter) found(ctx context.Context) error {
	stats, err := r.Stats(ctx)
	if err != nil {
		return err
	}
	flow := killFlow{Paused: &killPause{Paused: stats.Paused, Found: true}, Fired: new(killFired)}
	for schedule, err := range r.Schedules(ctx, killSchedule) {
		if err != nil {
			return err
		}
		flow.Fired.Through = schedule.Through
		if n := len(schedule.Runs); n > 0 {
			flow.Fired.ID = schedule.Runs[n-1].MessageID
		}
	}
	r.tell(killLine{Queue: r.queue, Flow: flow})
	return nil
}

// pause pauses and resumes the queue until it fails.
func (r *reporter) pause(rng *rand.Rand) error {
	for paused := true; ; paused = !paused {
		r.tell(killLine{Queue: r.queue, Flow: killFlow{Paused: &killPause{Paused: paused, Started: true}}})
		change := r.Resume
		if paused {
			change = r.Pause
		}
		if err := change(context.Background()); err != nil {
			return err
		}
		r.tell(killLine{Queue: r.queue, Flow: killFlow{Paused: &killPause{Paused: paused}}})
		wait := 30 * time.Millisecond
		if paused {
			wait = 5 * time.Millisecond
		}
		time.Sleep(time.Duration(rng.Int64N(int64(wait))))
	}
}

// fire sends messages of a schedule until it fails. The events name the due time.
func (r *reporter) fire() error {
	var known driver.Schedule
	for {
		due := time.Now().Truncate(time.Millisecond)
		if !due.After(known.Through) {
			time.Sleep(time.Millisecond)
			continue
		}
		body := fmt.Sprint(killSchedule, " ", due.UnixMilli())
		f := driver.Firing{
			Name: killSchedule, Revision: known.Revision, Definition: []byte("{}"), Through: due,
			Messages: []driver.DueMessage{{Due: due, Outgoing: driver.Outgoing{Body: []byte(body)}}},
		}
		var done bool
		lost := errors.New("another firing was first")
		err := r.call(history.OpSend, []history.Event{{Digest: body}}, func() (err error) {
			if known, done, err = r.Fire(context.Background(), f); err == nil && !done {
				return lost
			}
			return err
		}, func(events []history.Event) []history.Event {
			if n := len(known.Runs); done && n > 0 {
				events[0].ID = known.Runs[n-1].MessageID
			}
			return events
		})
		if err != nil && !errors.Is(err, lost) {
			return err
		}
	}
}

// debounce sends messages that replace those before them, until it fails. The count of the event
// is the number in the body.
func (r *reporter) debounce(seed uint64, rng *rand.Rand) error {
	for n := 1; ; n++ {
		key := fmt.Sprintf("replaced %d-%d", seed, rng.IntN(4))
		out := driver.Outgoing{Body: fmt.Append(nil, key, "~", n), UniqueKey: key, Replace: true, Delay: 10 * time.Millisecond}
		if _, err := r.Send(context.Background(), []driver.Outgoing{out}); err != nil {
			return err
		}
	}
}

// killDigest returns what identifies the sends of a message, and its number if it is one that
// others replace.
func killDigest(body []byte) (string, int) {
	digest, number, found := strings.Cut(string(body), "~")
	if !found {
		return digest, 0
	}
	n, _ := strconv.Atoi(number)
	return digest, n
}

// edit changes a message that was sent just now, and has no delay. One that is in flight or gone
// is refused.
func (r *reporter) edit(rng *rand.Rand, id string) error {
	ctx := context.Background()
	var err error
	switch rng.IntN(4) {
	case 0:
		err = r.call(history.OpDiscard, []history.Event{{ID: id}}, func() error {
			_, err := r.Edit(ctx, id, driver.Edit{Remove: true})
			return err
		}, func(events []history.Event) []history.Event {
			if events[0].Outcome == history.OutcomeOK {
				events[0].Count = 1
			}
			return events
		})
	case 1:
		_, err = r.Edit(ctx, id, driver.Edit{Ready: true})
	case 2:
		_, err = r.Edit(ctx, id, driver.Edit{DeliverAt: time.Now().Add(30 * time.Millisecond)})
	default:
		if killQueues[r.queue].PriorityAging != 0 {
			_, err = r.Edit(ctx, id, driver.Edit{Prioritize: true, Priority: rng.IntN(driver.MaxPriority + 1)})
		}
	}
	if errors.Is(err, driver.ErrNotFound) || errors.Is(err, driver.ErrConflict) {
		return nil
	}
	return err
}

// enterFlow compares what a process found with what processes before it have done.
func (k *killRun) enterFlow(queue string, flow killFlow) error {
	if p := flow.Paused; p != nil {
		before := k.pauses[queue]
		if p.Found && !before.Started && p.Paused != before.Paused {
			return fmt.Errorf("queue %s: paused is %v after a kill, want %v", queue, p.Paused, before.Paused)
		}
		k.pauses[queue] = *p
	}
	if f := flow.Fired; f != nil {
		return k.enterFired(queue, f)
	}
	return nil
}

// enterFired compares the schedule of a queue with the firings of processes before. One of unknown
// outcome was done if the schedule has its due time, and otherwise it was not.
func (k *killRun) enterFired(queue string, f *killFired) error {
	for key, e := range k.events[queue] {
		text, isFired := strings.CutPrefix(e.Digest, killSchedule+" ")
		if !isFired || e.Op != history.OpSend {
			continue
		}
		ms, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return err
		}
		switch due := time.UnixMilli(ms); {
		case e.Outcome == history.OutcomeOK && due.After(f.Through):
			return fmt.Errorf("queue %s: a firing for %v is lost: the schedule is dealt with through %v", queue, due, f.Through)
		case e.Outcome != history.OutcomeUnknown:
		case due.Equal(f.Through):
			e.Outcome, e.ID = history.OutcomeOK, f.ID
			k.events[queue][key] = e
			k.fired++
		default:
			e.Outcome = history.OutcomeFail
			k.events[queue][key] = e
		}
	}
	return nil
}

// checkFlow checks that removed messages stay away, and that the latest body is delivered.
func (k *killRun) checkFlow(t *testing.T, recorded history.History, final history.FinalState) {
	t.Helper()
	removed, replaced := make(map[string]history.Event), make(map[string]history.Event)
	for _, e := range recorded.Events {
		switch {
		case e.Outcome != history.OutcomeOK || e.ID == "":
		case e.Op == history.OpDiscard:
			removed[e.ID] = e
			if state, present := final.Present[e.ID]; present {
				t.Errorf("message %s was removed and is %s at the end", e.ID, state)
			}
		case e.Op == history.OpSend && e.Count > replaced[e.ID].Count:
			replaced[e.ID] = e
		}
	}
	for _, e := range recorded.Events {
		if e.Op != history.OpReceive || e.ID == "" {
			continue
		}
		if r, was := removed[e.ID]; was && r.Return.Time < e.Invoke.Time {
			t.Errorf("message %s was delivered after it was removed", e.ID)
		}
		if r, was := replaced[e.ID]; was && r.Return.Time < e.Invoke.Time && e.Count < r.Count {
			t.Errorf("message %s was delivered with body %d after body %d had replaced it", e.ID, e.Count, r.Count)
		}
	}
	k.removed += len(removed)
	k.replaced += len(replaced)
}
