package faulty_test

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/driver/drivertest"
	"github.com/mailboxmq/mailbox/internal/testing/faulty"
	"github.com/mailboxmq/mailbox/internal/testing/workertest"
	"github.com/mailboxmq/mailbox/membox"
)

func TestEveryRuleHasASaboteur(t *testing.T) {
	broken := make(map[string]int)
	for _, saboteur := range faulty.All() {
		broken[saboteur.Breaks]++
	}
	rules := map[string]bool{workertest.Rule: true}
	for _, c := range drivertest.Cases() {
		rule, _, _ := strings.Cut(c, "/")
		if broken[rule] == 0 && !rules[rule] {
			t.Errorf("no saboteur breaks %s, for which the suite has cases", rule)
		}
		rules[rule] = true
	}
	if broken[workertest.Rule] == 0 {
		t.Errorf("no saboteur breaks %s, for which package workertest has cases", workertest.Rule)
	}
	for rule := range broken {
		if !rules[rule] {
			t.Errorf("a saboteur breaks %s, for which the suite has no cases", rule)
		}
	}
	t.Logf("%d saboteurs for %d rules", len(faulty.All()), len(rules))
}

func TestSaboteursHaveUniqueNamesAndSentences(t *testing.T) {
	plainName := regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)
	seen := make(map[string]bool)
	for _, saboteur := range faulty.All() {
		if !plainName.MatchString(saboteur.Name) || seen[saboteur.Name] {
			t.Errorf("%q is used twice, or cannot name a test", saboteur.Name)
		}
		seen[saboteur.Name] = true
		if !strings.HasSuffix(saboteur.What, ".") {
			t.Errorf("%s: %q is not a sentence", saboteur.Name, saboteur.What)
		}
	}
}

// bareOpener has none of the optional interfaces of an opener.
type bareOpener struct{ driver.Opener }

func TestWrapperAddsNoAbility(t *testing.T) {
	opener := faulty.PassThrough(bareOpener{membox.New(nil)})
	if _, ok := opener.(driver.Admin); ok {
		t.Error("a wrapped opener without Admin has it")
	}
	if _, ok := opener.(driver.Pinger); ok {
		t.Error("a wrapped opener without Pinger has it")
	}
	if _, ok := opener.(interface{ Close() error }); ok {
		t.Error("a wrapped opener without Close has it")
	}
}

func TestPassThroughPassesEveryMethodOn(t *testing.T) { drivertest.RunWrapper(t, faulty.PassThrough) }

func TestWrapperKeepsAbilities(t *testing.T) {
	for _, saboteur := range faulty.All() {
		opener := saboteur.Wrap(membox.New(nil))
		for ability, ok := range map[string]bool{
			"Admin":  is[driver.Admin](opener),
			"Pinger": is[driver.Pinger](opener),
			"Close":  is[interface{ Close() error }](opener),
		} {
			if !ok {
				t.Errorf("%s: the wrapped opener lacks %s", saboteur.Name, ability)
			}
		}
	}
}

func is[T any](value any) bool { _, ok := value.(T); return ok }

// A saboteur is used like the backend it wraps. This one accepts five messages and keeps four.
func ExampleSaboteur() {
	saboteur := faulty.All()[0]
	fmt.Println(saboteur.What)

	opener := saboteur.Wrap(membox.New(nil))
	ctx := context.Background()
	queue, err := opener.OpenQueue(ctx, "orders")
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 5 {
		if _, err := queue.Send(ctx, []driver.Outgoing{{Body: []byte("order")}}); err != nil {
			fmt.Println(err)
		}
	}
	stats, err := queue.Stats(ctx)
	fmt.Println(stats.Ready, err)
	// Output:
	// Every fifth message is answered with an id and never enqueued.
	// 4 <nil>
}
