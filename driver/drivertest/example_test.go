package drivertest_test

import (
	"fmt"
	"strings"

	"github.com/mailboxmq/mailbox/driver/drivertest"
)

// Run runs each case as a subtest, named after the rule that it proves and its claim.
func ExampleCases() {
	for _, c := range drivertest.Cases() {
		if strings.HasPrefix(c, "ACK-1/") && strings.HasSuffix(c, "leaves the others") {
			fmt.Println(c)
		}
	}
	// Output: ACK-1/ack of one message leaves the others
}
