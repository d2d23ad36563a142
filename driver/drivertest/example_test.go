package drivertest_test

import (
	"fmt"
	"strings"

	"github.com/mailboxmq/mailbox/driver/drivertest"
)

// Run runs each case as a subtest, named after the rule that it proves and its claim.
func ExampleCases() {
	for _, c := range drivertest.Cases() {
		if c.ID == "ACK-1" && strings.Contains(c.Title, "leaves the others") {
			fmt.Println(c.ID + "/" + c.Title)
		}
	}
	// Output: ACK-1/ack of one message leaves the others
}
