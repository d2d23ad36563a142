package drivertest

import (
	"strings"
	"testing"
)

func TestReplyStoreCaseNamesAreDistinctAndCanBeSelected(t *testing.T) {
	seen := make(map[string]bool)
	for _, c := range ReplyStoreCases() {
		if seen[c] {
			t.Errorf("two cases are called %s", c)
		}
		seen[c] = true
		id, title, _ := strings.Cut(c, "/")
		if !strings.HasPrefix(id, "RPL-") {
			t.Errorf("case %q belongs to %s, which is not a rule for reply stores", title, id)
		}
		if title == "" || strings.ContainsAny(title, "/\"\t\n") {
			t.Errorf("%s: title %q cannot be a part of a subtest's name", id, title)
		}
	}
	if len(seen) < 40 {
		t.Errorf("only %d cases are left", len(seen))
	}
}
