package faulty_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/driver/drivertest"
	"github.com/mailboxmq/mailbox/internal/testing/faulty"
	"github.com/mailboxmq/mailbox/reply"
)

// storeVariable tells a child process which saboteur to test.
const storeVariable = "MAILBOX_REPLY_STORE_SABOTEUR"

func storeOf(wrap func(driver.ReplyStore) driver.ReplyStore) drivertest.ReplyStore {
	return drivertest.ReplyStore{
		Open:    func(testing.TB) driver.ReplyStore { return wrap(reply.NewMemory(nil)) },
		Virtual: true,
	}
}

func TestPassedReplyStorePasses(t *testing.T) {
	drivertest.RunReplyStore(t, storeOf(faulty.PassReplyStore))
}

func TestEveryReplyRuleHasASaboteur(t *testing.T) {
	broken := make(map[string]int)
	for _, saboteur := range faulty.ReplyStores() {
		broken[saboteur.Breaks]++
	}
	rules := make(map[string]bool)
	for _, c := range drivertest.ReplyStoreCases() {
		rule, _, _ := strings.Cut(c, "/")
		if broken[rule] == 0 && !rules[rule] {
			t.Errorf("no saboteur breaks %s, for which the suite has cases", rule)
		}
		rules[rule] = true
	}
	for rule := range broken {
		if !rules[rule] {
			t.Errorf("a saboteur breaks %s, for which the suite has no cases", rule)
		}
	}
	t.Logf("%d saboteurs for %d rules", len(faulty.ReplyStores()), len(rules))
}

func TestReplyStoreSaboteursHaveUniqueNamesAndSentences(t *testing.T) {
	plainName := regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)
	seen := make(map[string]bool)
	for _, saboteur := range faulty.ReplyStores() {
		if !plainName.MatchString(saboteur.Name) || seen[saboteur.Name] {
			t.Errorf("%q is used twice, or cannot name a test", saboteur.Name)
		}
		seen[saboteur.Name] = true
		if !strings.HasSuffix(saboteur.What, ".") {
			t.Errorf("%s: %q is not a sentence", saboteur.Name, saboteur.What)
		}
	}
}

// TestSabotagedReplyStore fails, as it must, in a child process.
func TestSabotagedReplyStore(t *testing.T) {
	name := os.Getenv(storeVariable)
	if name == "" {
		t.Skipf("run by TestEveryReplyStoreSaboteurIsCaught; to see one saboteur fail, set %s to its name", storeVariable)
	}
	all := faulty.ReplyStores()
	i := slices.IndexFunc(all, func(s faulty.ReplyStoreSaboteur) bool { return s.Name == name })
	if i < 0 {
		t.Fatalf("unknown saboteur %q", name)
	}
	drivertest.RunReplyStore(t, storeOf(all[i].Wrap))
}

var failedSlotCase = regexp.MustCompile(`--- FAIL: TestSabotagedReplyStore/(\S+/\S+) `)

func TestEveryReplyStoreSaboteurIsCaught(t *testing.T) {
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, saboteur := range faulty.ReplyStores() {
		t.Run(fmt.Sprintf("%s (%s)", saboteur.Name, saboteur.Breaks), func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			child := exec.CommandContext(ctx, executable, "-test.run=^TestSabotagedReplyStore$/^"+saboteur.Breaks+"$", "-test.v")
			child.Env = append(os.Environ(), storeVariable+"="+saboteur.Name)
			output, err := child.CombinedOutput()
			var by []string
			for _, match := range failedSlotCase.FindAllStringSubmatch(string(output), -1) {
				by = append(by, readable(match[1]))
			}
			text := string(output)
			switch {
			case ctx.Err() != nil:
				t.Errorf("%s\nthe suite hung:\n%s", saboteur.What, text)
			case strings.Contains(text, "WARNING: DATA RACE"), strings.Contains(text, "\npanic: "):
				t.Errorf("%s\nthe saboteur, or the suite, panics or has a data race:\n%s", saboteur.What, text)
			case err == nil || len(by) == 0:
				t.Errorf("%s\nnothing of %s caught it", saboteur.What, saboteur.Breaks)
			default:
				t.Logf("caught by %s", strings.Join(by, "\n          "))
			}
		})
	}
}
