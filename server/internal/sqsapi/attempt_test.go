package sqsapi

import (
	"strconv"
	"strings"
	"testing"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

// TestAttemptsAreBoundedByBytesOfAttributes stores messages whose size is mostly in
// their attributes.
func TestAttemptsAreBoundedByBytesOfAttributes(t *testing.T) {
	var table attemptTable
	table.init()
	attributes := map[string]string{"long": strings.Repeat("l", 60<<10)}
	const tries = 2 * maxAttemptBytes / (60 << 10)
	for i := range tries {
		_, done, err := table.begin(t.Context(), attemptKey{id: strconv.Itoa(i)})
		if err != nil {
			t.Fatal(err)
		}
		done([]broker.Delivery{{Message: driver.Message{Body: []byte("b"), Attributes: attributes}}})
	}
	if held := len(table.byKey) * len(attributes["long"]); held > maxAttemptBytes {
		t.Errorf("%d bytes of attributes are held, at most %d are allowed", held, maxAttemptBytes)
	}
	if len(table.byKey) == 0 {
		t.Error("nothing is remembered")
	}
}
