package diskbox

import (
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// Tests of the model: it must not claim to know whether an operation was done if a crash leaves
// that open.

// A modelEnv makes the calls of a crash test, step by step.
type modelEnv struct {
	*crashEnv
	t       *testing.T
	backend *Backend
	crashQueue
}

func newBookkeeper(t *testing.T, kind int) *modelEnv {
	t.Helper()
	var budget atomic.Int64
	budget.Store(100)
	k := &modelEnv{t: t, crashEnv: newCrashEnv(t.Context(), 4, &budget, &crashSummary{})}
	k.kinds = []int{kind}
	k.prepare()
	k.start()
	k.must(k.configure(k.backend))
	k.start()
	return k
}

func (k *modelEnv) must(err error) {
	k.t.Helper()
	if err != nil {
		k.t.Fatal(err)
	}
}

// start opens the backend, if it is not open, and its queue.
func (k *modelEnv) start() {
	k.t.Helper()
	var err error
	if k.backend == nil {
		clock := k.clock
		k.backend, err = k.open(k.disk.FS(), &clock, func(err error) { k.t.Errorf("it failed: %v", err) })
		k.must(err)
	}
	model := k.models.queues[0]
	q, err := k.backend.OpenQueue(k.ctx, model.name)
	k.must(err)
	k.crashQueue = crashQueue{model: model, queue: q}
}

// send sends n messages, and returns their tokens.
func (k *modelEnv) send(n int) (tokens []int) {
	k.t.Helper()
	var batch []driver.Outgoing
	for range n {
		out := driver.Outgoing{CorrelationID: strconv.Itoa(len(k.model.messages))}
		tokens, batch = append(tokens, k.model.addLocked(out)), append(batch, out)
	}
	op := k.models.begin(k.model, opSend, tokens)
	sent, err := k.queue.Send(k.ctx, batch)
	k.must(err)
	if wrong := k.models.sent(op, sent, err); wrong != "" {
		k.t.Fatal(wrong)
	}
	return tokens
}

// deadLetter receives as many messages as there are tokens and dead-letters them.
func (k *modelEnv) deadLetter(tokens []int) {
	k.t.Helper()
	op := k.models.begin(k.model, opReceive, nil)
	got := receive(k.t, k.queue, len(tokens))
	if wrong := k.models.delivered(op, tokens, got); wrong != "" {
		k.t.Fatal(wrong)
	}
	var requests []driver.DeadLetterRequest
	for n, token := range tokens {
		requests = append(requests, driver.DeadLetterRequest{
			Receipt: got[n].Receipt, Reason: crashReason(token), Error: crashError(token), ErrorType: crashErrorType,
		})
	}
	op = k.models.begin(k.model, opDeadLetter, tokens)
	err := k.queue.DeadLetter(k.ctx, requests)
	k.must(err)
	k.models.settled(op, got, 0, err)
}

// release receives all messages and releases them.
func (k *modelEnv) release() {
	k.t.Helper()
	op := k.models.begin(k.model, opReceive, nil)
	got := receive(k.t, k.queue, len(k.model.messages))
	var tokens []int
	var nacks []driver.Nack
	for _, d := range got {
		token, _ := tokenOf(&d.Message, k.model)
		tokens = append(tokens, token)
		nacks = append(nacks, driver.Nack{Receipt: d.Receipt, Cause: crashCause(token), Mode: driver.NackRelease})
	}
	if wrong := k.models.delivered(op, tokens, got); wrong != "" {
		k.t.Fatal(wrong)
	}
	op = k.models.begin(k.model, opNack, tokens)
	op.mode = driver.NackRelease
	err := k.queue.Nack(k.ctx, nacks)
	k.must(err)
	k.models.settled(op, got, 0, err)
}

func (k *modelEnv) purge() {
	k.t.Helper()
	op := k.models.begin(k.model, opPurge, nil)
	_, err := k.queue.Purge(k.ctx)
	k.must(err)
	k.models.swept(op, isWaiting, isAbsent)
}

// redriveWithoutAnswer redrives all dead letters, and the power is cut before the answer: it is
// done, but the model does not know. The state that is found is then recorded.
func (k *modelEnv) redriveWithoutAnswer() {
	k.t.Helper()
	k.models.begin(k.model, opRedrive, nil)
	if _, err := k.queue.Redrive(k.ctx, nil, 0); err != nil {
		k.t.Fatal(err)
	}
	k.cut("before the answer")
	k.must(k.backend.Close())
	k.backend = nil
	k.crash(&k.images[len(k.images)-1])
	k.start()
	var result crashResult
	k.must(k.adoptFound(k.backend, &result))
	k.must(result.err())
}

// check cuts the power and compares the disk with the model.
func (k *modelEnv) check() {
	k.t.Helper()
	k.cut("at the end")
	k.must(k.backend.Close())
	image := &k.images[len(k.images)-1]
	result := k.result(image, nil, rand.New(rand.NewPCG(1, 1)))
	if err := result.err(); err != nil {
		k.t.Errorf("the model is wrong: %v", err)
	}
}

// retainingKind is the queue with both retentions.
const retainingKind = 5

// A dead letter that was perhaps redriven may be ready, and if it is found dead later it may
// have died again, at another time.
func TestCrashModelForgetsDeathAfterUnknownRedrive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newBookkeeper(t, retainingKind)
		k.deadLetter(k.send(1))
		elapse(time.Second)
		k.redriveWithoutAnswer()
		elapse(crashQueues[retainingKind].config.RetainReady.Age + time.Second) // it expires
		k.purge()                                                               // it is not ready any more
		k.check()
	})
}

// A dead letter that was perhaps redriven may be younger than others, which then expire first
// if only some are kept.
func TestCrashModelForgetsAgeAfterUnknownRedrive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newBookkeeper(t, retainingKind)
		const half = 4
		if kept := crashQueues[retainingKind].config.RetainReady.Count; kept != 2*half {
			t.Fatalf("%d messages are kept", kept)
		}
		k.deadLetter(k.send(half))
		k.send(half)
		k.redriveWithoutAnswer()
		k.send(1) // over the bound: the first of the second half expires
		k.check()
	})
}

// While all dead letters are redriven, they can be purged, or received again and released. A
// message that is found afterwards was redriven, whichever answer comes first.
func TestCrashModelAllowsRedriveDuringOtherOperations(t *testing.T) {
	overlaps := map[string]func(k *modelEnv, letters []int){
		"all are purged": func(k *modelEnv, _ []int) {
			purge := k.models.begin(k.model, opPurgeDead, nil)
			k.redriveMeanwhile(func() {
				_, err := k.queue.PurgeDead(k.ctx)
				k.must(err)
				k.models.swept(purge, isDead, isAbsent)
			})
		},
		"they are discarded": func(k *modelEnv, letters []int) {
			discard := k.models.begin(k.model, opDiscard, letters)
			k.redriveMeanwhile(func() {
				count, err := k.queue.Discard(k.ctx, []string{k.model.messages[letters[0]].id})
				k.must(err)
				k.models.moved(discard, count)
			})
		},
		"they are released": func(k *modelEnv, _ []int) { k.redriveMeanwhile(k.release) },
	}
	for name, overlap := range overlaps {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := newBookkeeper(t, 0)
				letters := k.send(1)
				k.deadLetter(letters)
				k.send(1)
				overlap(k, letters)
				k.check()
			})
		})
	}
}

// redriveMeanwhile redrives all dead letters, and records the answer after another operation
// was made and answered.
func (k *modelEnv) redriveMeanwhile(other func()) {
	k.t.Helper()
	redrive := k.models.begin(k.model, opRedrive, nil)
	_, err := k.queue.Redrive(k.ctx, nil, 0)
	k.must(err)
	other()
	k.models.swept(redrive, isDead, isWaiting)
}
