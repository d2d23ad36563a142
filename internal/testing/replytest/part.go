package replytest

import (
	"slices"
	"strings"
	"testing"

	"github.com/mailboxmq/mailbox/internal/testing/volume"
)

// part has cases of the suite of reply stores that no time passes in, so that a slow machine does not
// matter to them.
var part = []string{
	"RPL-2/a second answer is ErrReplyAlreadySent and changes nothing",
	"RPL-2/a cancelled slot takes no answer, and says why",
	"RPL-4/cancelling is final, and doing it twice is fine",
	"RPL-5/a list has each slot once while others come and go",
	"RPL-5/an id is free again when its slot is gone",
	"RPL-5/an answer is read as it was written",
	"RPL-5/consuming returns the answer and removes the slot",
	"RPL-5/of many creates of one slot, one succeeds",
	"RPL-5/of answers and cancels at once, one wins",
	"RPL-5/slots are listed with their states and without answers, the first to expire first",
	"RPL-6/a failure is read as a failure, with its kind",
}

// InPart skips a case of the suite of reply stores that takes long on the real clock, unless tests run at
// length. The function Open of a store calls it first.
func InPart(t testing.TB) {
	t.Helper()
	isPart := slices.ContainsFunc(part, func(name string) bool {
		return strings.HasSuffix(t.Name(), "/"+strings.ReplaceAll(name, " ", "_"))
	})
	if !isPart {
		volume.OnlyAtLength(t, "it takes long on the real clock")
	}
}
