package checkup_test

import (
	"strings"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/checkup"
)

// find returns the finding of a check.
func find(t *testing.T, all []checkup.Finding, check string) checkup.Finding {
	t.Helper()
	for _, f := range all {
		if f.Check == check {
			return f
		}
	}
	t.Fatalf("no finding %q in %v", check, all)
	return checkup.Finding{}
}

func TestQueuesAreCheckedForLimitsAndBounds(t *testing.T) {
	var q checkup.Queues
	fine := driver.Config{MaxDeliveries: 5, MaxDead: 10, MaxMessages: driver.Off, MaxInFlight: driver.Off}
	q.Add("fine", &fine, &driver.Stats{Ready: 1_000_000, Dead: 7})
	for _, check := range []string{"limits", "dead letters", "bounds"} {
		if f := find(t, q.Findings(), check); f.Status != checkup.OK {
			t.Errorf("a queue without problems: %+v", f)
		}
	}
	endless, unbounded, kept, near := fine, fine, fine, fine
	endless.MaxDeliveries, unbounded.MaxDead, kept.MaxDead, near.MaxMessages = driver.Off, driver.Off, driver.Off, 100
	kept.RetainDead.Age = time.Hour
	q.Add("endless", &endless, &driver.Stats{})
	q.Add("unbounded", &unbounded, &driver.Stats{})
	q.Add("kept", &kept, &driver.Stats{})
	q.Add("near", &near, &driver.Stats{Ready: 50, InFlight: 30})
	for check, want := range map[string]string{
		"limits": "1 queue without a delivery limit: endless", "dead letters": "1 queue without a bound of dead letters: unbounded", "bounds": "1 bound used to 80 % or more: near (messages: 80 of 100)",
	} {
		if f := find(t, q.Findings(), check); f.Status != checkup.Warning || f.Message != want || f.Advice == "" {
			t.Errorf("%s: %+v, want %q", check, f, want)
		}
	}
}

func TestNotesAndExpiryTellOfProblems(t *testing.T) {
	all := checkup.Notes(map[string]string{"dlq_profile": "ephemeral", "replication": "no standby is synchronous", "plaintext": "beyond this machine", "dead_letters_full": "1 queue", "sqs": "unsigned"})
	for _, check := range []string{"durability", "standby", "plaintext", "dead letters", "sqs"} {
		if f := find(t, all, check); f.Status != checkup.Warning || f.Advice == "" {
			t.Errorf("%+v", f)
		}
	}
	if all := checkup.Notes(map[string]string{"dlq_profile": "durable"}); len(all) > 0 {
		t.Errorf("without a problem: %v", all)
	}
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for after, want := range map[time.Duration]string{-time.Second: checkup.Failed, 24 * time.Hour: checkup.Warning, 15 * 24 * time.Hour: checkup.OK} {
		if f := checkup.Expiry("token", "the token", "mint another", now.Add(after), now); f.Status != want || !strings.HasPrefix(f.Message, "the token ") {
			t.Errorf("after %v: %+v, want %s", after, f, want)
		}
	}
	if f := find(t, checkup.Readiness([]string{"clock_skew_ok"}, ""), "readiness"); f.Status != checkup.Failed || !strings.Contains(f.Advice, "clock") {
		t.Errorf("a clock that was set back: %+v", f)
	}
}
