package drivertest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

var slotModelCases = []slotCase{
	{"RPL-5", "a reply store does what the model does", storeAgreesWithModel},
}

// slotModel is a reply store as simple as possible: the reference for other stores.
type slotModel struct {
	now   time.Duration
	slots map[string]*modelSlot
}

type modelSlot struct {
	state   driver.SlotState
	body    string
	expires time.Duration
}

func (m *slotModel) at(id string) *modelSlot {
	slot := m.slots[id]
	if slot != nil && m.now >= slot.expires {
		slot.state, slot.body = driver.SlotExpired, ""
	}
	return slot
}

func (m *slotModel) create(id string, ttl time.Duration) driver.Code {
	if m.at(id) != nil {
		return driver.ErrConflict
	}
	m.slots[id] = &modelSlot{state: driver.SlotPending, expires: m.now + ttl}
	return fine
}

func (m *slotModel) write(id string, state driver.SlotState, body string) driver.Code {
	slot := m.at(id)
	switch {
	case slot == nil:
		return driver.ErrNotFound
	case state == driver.SlotCancelled && slot.state == driver.SlotCancelled:
		return fine
	case slot.state == driver.SlotResolved:
		return driver.ErrReplyAlreadySent
	case slot.state == driver.SlotCancelled:
		return driver.ErrReplyCancelled
	case slot.state == driver.SlotExpired:
		return driver.ErrReplyExpired
	}
	slot.state, slot.body = state, body
	return fine
}

func (m *slotModel) look(id string) (driver.SlotState, string, driver.Code) {
	slot := m.at(id)
	if slot == nil {
		return "", "", driver.ErrNotFound
	}
	return slot.state, slot.body, fine
}

func (m *slotModel) expired() (ids []string) {
	for id := range m.slots {
		if m.at(id).state == driver.SlotExpired {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// storeAgreesWithModel runs random operations on few slots, so that they interact. On a real
// clock no slot expires: the model cannot know the exact time.
func storeAgreesWithModel(e *slotEnv) {
	const slots = 4
	for seed := range e.rounds(40, 3) {
		random := rand.New(rand.NewPCG(uint64(seed), 1))
		model := &slotModel{slots: make(map[string]*modelSlot)}
		var history []string
		for step := range e.rounds(200, 60) {
			id := fmt.Sprintf("%d-%d", seed, random.IntN(slots))
			done, got, want := e.step(model, random, id, fmt.Sprint("answer ", step))
			history = append(history, fmt.Sprintf("%s: %s", done, got))
			if got != want {
				e.failf("with seed %d, got %s, want %s, after\n%s", seed, got, want, strings.Join(history, "\n"))
			}
		}
		for i := range slots { // remove the slots for the next round
			e.ok(e.store.Delete(e.ctx(), fmt.Sprintf("%d-%d", seed, i)), "delete")
		}
	}
}

// step runs a random operation on the store and on the model, and returns its description and
// both results.
func (e *slotEnv) step(model *slotModel, random *rand.Rand, id, body string) (done, got, want string) {
	ctx := e.ctx()
	switch random.IntN(10) {
	case 0, 1:
		ttl := e.hold
		if e.backend.Virtual {
			ttl = time.Duration(1+random.IntN(5)) * e.tick()
		}
		return fmt.Sprintf("create %s for %v", id, ttl), outcomeOf(e.store.Create(ctx, id, ttl)), outcomeOf(errorOf(model.create(id, ttl)))
	case 2, 3:
		return fmt.Sprintf("resolve %s with %s", id, body), outcomeOf(e.other.Resolve(ctx, id, driver.Answer{Body: []byte(body)})),
			outcomeOf(errorOf(model.write(id, driver.SlotResolved, body)))
	case 4:
		return "cancel " + id, outcomeOf(e.other.Cancel(ctx, id)), outcomeOf(errorOf(model.write(id, driver.SlotCancelled, "")))
	case 5:
		slot, err := e.store.Consume(ctx, id)
		state, answer, code := model.look(id)
		if code == fine && state != driver.SlotPending {
			delete(model.slots, id)
		}
		return "consume " + id, foundOf(slot.State, string(slot.Answer.Body), err), foundOf(state, answer, errorOf(code))
	case 6:
		delete(model.slots, id)
		return "delete " + id, outcomeOf(e.store.Delete(ctx, id)), outcomeOf(nil)
	case 7:
		// Expired slots are swept first: stores may forget them after a while.
		if _, _, err := e.sweepBoth(model); err != nil {
			return "sweep", outcomeOf(err), outcomeOf(nil)
		}
		if e.backend.Virtual {
			pause := time.Duration(random.IntN(3)) * e.tick()
			time.Sleep(pause)
			model.now += pause
		}
		ids, err := e.store.Expired(ctx, 100)
		slices.Sort(ids)
		return "sweep, let time pass, list expired", foundOf("", strings.Join(ids, " "), err), foundOf("", strings.Join(model.expired(), " "), nil)
	case 8:
		removed, expired, err := e.sweepBoth(model)
		return "sweep", foundOf("", fmt.Sprint(removed), err), foundOf("", fmt.Sprint(expired), nil)
	}
	slot, err := e.store.Get(ctx, id)
	state, answer, code := model.look(id)
	return "get " + id, foundOf(slot.State, string(slot.Answer.Body), err), foundOf(state, answer, errorOf(code))
}

// sweepBoth sweeps the store and the model, and returns both counts.
func (e *slotEnv) sweepBoth(model *slotModel) (removed, expired int, err error) {
	removed, err = e.store.Sweep(e.ctx(), 100)
	for _, id := range model.expired() {
		delete(model.slots, id)
		expired++
	}
	return removed, expired, err
}

func errorOf(code driver.Code) error {
	if code == fine {
		return nil
	}
	return code
}

// outcomeOf reduces an error to its code.
func outcomeOf(err error) string {
	for _, code := range []driver.Code{
		driver.ErrConflict, driver.ErrNotFound,
		driver.ErrReplyAlreadySent, driver.ErrReplyCancelled, driver.ErrReplyExpired,
	} {
		if errors.Is(err, code) {
			return string(code)
		}
	}
	return fmt.Sprint(err)
}

func foundOf(state driver.SlotState, body string, err error) string {
	if err != nil {
		return outcomeOf(err)
	}
	return fmt.Sprintf("%s %q", state, body)
}
