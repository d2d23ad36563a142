package drivertest

import (
	"fmt"

	"github.com/mailboxmq/mailbox/driver"
)

// targetQueue is the target of the moves.
const targetQueue = "target"

// moveNeeds are the needs of every case about moving.
var moveNeeds = []need{needMove}

var moveCases = []testCase{
	{id: "DLQ-9", title: "many messages move", needs: moveNeeds, run: manyMove, repeats: true},
	{
		id: "DLQ-9", title: "dead letters move back to a source whose dead letters are full",
		config: func(e *env) driver.Config {
			return driver.Config{MaxDeliveries: 1, MaxDead: 1, DeadLetterTo: deadLetterQueue, RetainReady: driver.Retention{Age: e.hold}}
		},
		needs: []need{needMove, needAdmin, needDeadLetters}, run: moveToSourceWithFullDeadLetters,
	},
	{
		id: "DLQ-9", title: "groups keep their order over several shards",
		config: always(driver.Config{Shards: 3}), needs: []need{needMove, needGroups}, run: shardedMove,
	},
	{id: "DLQ-9", title: "moves in both directions at once lose, double and block nothing", needs: moveNeeds, run: movesCross},
	{id: "DLQ-9", title: "moves cross those of messages that die", config: withDeadLetterTo, needs: moveNeeds, run: movesCrossDeaths},
	{id: "DLQ-9", title: "a message is delivered here or moved, and never both", needs: moveNeeds, run: movedOrDelivered},
}

// move moves messages and checks how many.
func (e *env) move(q driver.Queue, to string, limit, want int) {
	e.t.Helper()
	moved, err := q.Move(e.ctx(), to, limit)
	e.ok(err, "move to %q", to)
	if moved != want {
		e.failf("move to %q, limit %d: %d moved, want %d", to, limit, moved, want)
	}
}

func manyMove(e *env, q driver.Queue) {
	want := numbered("m", e.rounds(3000, 600))
	target := e.open(targetQueue)
	e.send(q, want...)
	e.move(q, targetQueue, len(want)-10, len(want)-10)
	e.expectStats(q, driver.Stats{Ready: 10})
	e.move(q, targetQueue, 0, 10)
	e.expectEmpty(q)
	e.expectStats(target, driver.Stats{Ready: len(want)})
	e.expectNext(target, want...)
}

// moveToSourceWithFullDeadLetters moves between two queues that bound each other: the source
// has room for one dead letter, its target for one message.
func moveToSourceWithFullDeadLetters(e *env, q driver.Queue) {
	letters := e.configure(deadLetterQueue, driver.Config{MaxMessages: 1})
	for _, body := range []string{"a", "b", "c"} { // a moves, b must stay, and c cannot die
		e.send(q, body)
		e.nack(q, e.expectNext(q, body)[0], 0, "dead")
	}
	e.expectUnblocked("move the dead home", func() error {
		moved, err := letters.Move(e.ctx(), "", 0)
		if err == nil && moved != 1 {
			err = fmt.Errorf("%d moved, want 1", moved)
		}
		return err
	})
	e.expectEmpty(letters)
	e.expectUnblocked("move to where the dead go", func() error {
		_, err := q.Move(e.ctx(), deadLetterQueue, 0)
		return err
	})
	e.expectNext(letters, "a")
}
