package drivertest_test

import (
	"fmt"
	"strings"

	"github.com/mailboxmq/mailbox/driver/drivertest"
)

// Run runs each case as a subtest, named after the rule that it proves and its claim.
func ExampleCases() {
	for _, c := range drivertest.Cases() {
		if name := c.ID + "/" + c.Title; strings.HasPrefix(name, "VIS-2/an ack") {
			fmt.Println(name)
		}
	}
	// Output:
	// 
}
