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

// The tests in this file are about the books themselves: what they must not claim
// to know when a crash leaves it open whether something was done.

// A bookkeeper does what a client of a crash test does, step by step.
type bookkeeper struct {
	*crashLife
	t       *testing.T
	backend *Backend
	crashQueue
}

func newBookkeeper(t *testing.T, kind int) *bookkeeper {
	t.Helper()
	var budget atomic.Int64
	budget.Store(100)
	k := &bookkeeper{t: t, crashLife: newCrashLife(t.Context(), 4, &budget, &crashTally{})}
	k.kinds = []int{kind}
	k.prepare()
	k.start()
	k.must(k.configure(k.backend))
	k.start()
	return k
}

func (k *bookkeeper) must(err error) {
	k.t.Helper()
	if err != nil {
		k.t.Fatal(err)
	}
}

// start opens what is there, if it is not open yet, and its queue.
func (k *bookkeeper) start() {
	k.t.Helper()
	var err error
	if k.backend == nil {
		clock := k.clock
		k.backend, err = k.open(k.disk.FS(), &clock, func(err error) { k.t.Errorf("it failed: %v", err) })
		k.must(err)
	}
	book := k.ledger.books[0]
	q, err := k.backend.OpenQueue(k.ctx, book.name)
	k.must(err)
	k.crashQueue = crashQueue{book: book, queue: q}
}

// send sends n messages, and returns their tokens.
func (k *bookkeeper) send(n int) (tokens []int) {
	k.t.Helper()
	var batch []driver.Outgoing
	for range n {
		out := driver.Outgoing{CorrelationID: strconv.Itoa(len(k.book.items))}
		tokens, batch = append(tokens, k.book.addLocked(out)), append(batch, out)
	}
	deed := k.ledger.begin(k.book, deedSend, tokens)
	sent, err := k.queue.Send(k.ctx, batch)
	k.must(err)
	if wrong := k.ledger.sent(deed, sent, err); wrong != "" {
		k.t.Fatal(wrong)
	}
	return tokens
}

// deadLetter receives as many messages as there are tokens and dead-letters them.
func (k *bookkeeper) deadLetter(tokens []int) {
	k.t.Helper()
	deed := k.ledger.begin(k.book, deedReceive, nil)
	got := receive(k.t, k.queue, len(tokens))
	if wrong := k.ledger.delivered(deed, tokens, got); wrong != "" {
		k.t.Fatal(wrong)
	}
	var requests []driver.DeadLetterRequest
	for n, token := range tokens {
		requests = append(requests, driver.DeadLetterRequest{
			Receipt: got[n].Receipt, Reason: crashReason(token), Error: crashError(token), ErrorType: crashErrorType,
		})
	}
	deed = k.ledger.begin(k.book, deedDeadLetter, tokens)
	err := k.queue.DeadLetter(k.ctx, requests)
	k.must(err)
	k.ledger.settled(deed, got, 0, err)
}

func (k *bookkeeper) purge() {
	k.t.Helper()
	deed := k.ledger.begin(k.book, deedPurge, nil)
	_, err := k.queue.Purge(k.ctx)
	k.must(err)
	k.ledger.swept(deed, isWaiting, isAbsent)
}

// redriveUnheard redrives everything, and the power is cut before the answer is
// heard: it is done, and the books do not know it. What is there is then entered.
func (k *bookkeeper) redriveUnheard() {
	k.t.Helper()
	k.ledger.begin(k.book, deedRedrive, nil)
	if _, err := k.queue.Redrive(k.ctx, nil, 0); err != nil {
		k.t.Fatal(err)
	}
	k.cut("before the answer")
	k.must(k.backend.Close())
	k.backend = nil
	k.crash(&k.images[len(k.images)-1])
	k.start()
	var verdict crashVerdict
	k.must(k.takeStock(k.backend, &verdict))
	k.must(verdict.err())
}

// judge cuts the power and compares what is there with the books.
func (k *bookkeeper) judge() {
	k.t.Helper()
	k.cut("at the end")
	k.must(k.backend.Close())
	image := &k.images[len(k.images)-1]
	verdict := k.verdict(image, nil, rand.New(rand.NewPCG(1, 1)))
	if err := verdict.err(); err != nil {
		k.t.Errorf("the books are wrong: %v", err)
	}
}

// retainingKind is the queue with both retentions.
const retainingKind = 5

// A letter that was perhaps redriven may be alive, and if it is found dead later it
// has perhaps died again, at another time.
func TestBooksForgetDeathAfterUnknownRedrive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newBookkeeper(t, retainingKind)
		k.deadLetter(k.send(1))
		elapse(time.Second)
		k.redriveUnheard()
		elapse(crashQueues[retainingKind].config.RetainReady.Age + time.Second) // it dies of old age
		k.purge()                                                               // it is not waiting any more
		k.judge()
	})
}

// A letter that was perhaps redriven is perhaps younger than others, which then
// expire before it where only some are kept.
func TestBooksForgetAgeAfterUnknownRedrive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newBookkeeper(t, retainingKind)
		const half = 4
		if kept := crashQueues[retainingKind].config.RetainReady.Count; kept != 2*half {
			t.Fatalf("%d messages are kept", kept)
		}
		k.deadLetter(k.send(half))
		k.send(half)
		k.redriveUnheard()
		k.send(1) // one too many: the first of the second half expires
		k.judge()
	})
}

// When all dead letters are redriven and purged at the same time, a letter that is
// there afterwards was redriven, whichever answer comes first.
func TestBooksAllowRedriveOfUnpurgedDeadLetter(t *testing.T) {
	overlaps := map[string]func(k *bookkeeper, letters []int){
		"all are purged": func(k *bookkeeper, _ []int) {
			purge := k.ledger.begin(k.book, deedPurgeDead, nil)
			k.redriveMeanwhile(func() {
				_, err := k.queue.PurgeDead(k.ctx)
				k.must(err)
				k.ledger.swept(purge, isDead, isAbsent)
			})
		},
		"they are discarded": func(k *bookkeeper, letters []int) {
			discard := k.ledger.begin(k.book, deedDiscard, letters)
			k.redriveMeanwhile(func() {
				count, err := k.queue.Discard(k.ctx, []string{k.book.items[letters[0]].id})
				k.must(err)
				k.ledger.moved(discard, count)
			})
		},
	}
	for name, overlap := range overlaps {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := newBookkeeper(t, 0)
				letters := k.send(1)
				k.deadLetter(letters)
				k.send(1)
				overlap(k, letters)
				k.judge()
			})
		})
	}
}

// redriveMeanwhile redrives everything, and enters the answer when something else
// was done and answered.
func (k *bookkeeper) redriveMeanwhile(other func()) {
	k.t.Helper()
	redrive := k.ledger.begin(k.book, deedRedrive, nil)
	_, err := k.queue.Redrive(k.ctx, nil, 0)
	k.must(err)
	other()
	k.ledger.swept(redrive, isDead, isWaiting)
}
