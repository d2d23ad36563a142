package drivertest

import (
	"strings"
	"testing"
)

func TestReplyStoreCaseNamesAreDistinctAndCanBeSelected(t *testing.T) {
	seen := make(map[CaseInfo]bool)
	for _, c := range ReplyStoreCases() {
		if seen[c] {
			t.Errorf("two cases are called %s/%s", c.ID, c.Title)
		}
		seen[c] = true
		if !strings.HasPrefix(c.ID, "RPL-") {
			t.Errorf("case %q belongs to %s, which is not a rule for reply stores", c.Title, c.ID)
		}
		if c.Title == "" || strings.ContainsAny(c.Title, "/\"\t\n") {
			t.Errorf("%s: title %q cannot be a part of a subtest's name", c.ID, c.Title)
		}
	}
	if len(seen) < 40 {
		t.Errorf("only %d cases are left", len(seen))
	}
}
