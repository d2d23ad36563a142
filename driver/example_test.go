package driver_test

import (
	"errors"
	"fmt"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// Errors are tested by code; the details are for people and for retrying.
func ExampleError() {
	var err error = &driver.Error{
		Code: driver.ErrFull, Op: "send", Queue: "orders",
		Detail: "the queue is full", RetryAfter: time.Second,
	}
	fmt.Println(err)
	fmt.Println(errors.Is(err, driver.ErrFull), driver.RetryAfter(err))
	// Output:
	// mailbox: send orders: full: the queue is full (retry after 1s)
	// true 1s
}

// A batch keeps positions: element 1 failed, and only element 1.
func ExampleBatchError() {
	err := driver.NewBatchError([]error{nil, &driver.Error{Code: driver.ErrReceiptExpired, Op: "ack", Queue: "orders"}, nil})
	for i := range 3 {
		fmt.Println(i, driver.At(err, i))
	}
	// Output:
	// 0 <nil>
	// 1 mailbox: ack orders: receipt expired
	// 2 <nil>
}

// A backend checks messages against its own limits before it does anything.
func ExampleOutgoing_Check() {
	traits := driver.Traits{MaxBodyBytes: 1 << 20, MaxDelay: 15 * time.Minute}
	msg := driver.Outgoing{Delay: time.Hour}
	fmt.Println(msg.Check(&traits))
	// Output:
	// mailbox: send: invalid argument: Delay: 1h0m0s is outside 0…15m0s
}

// Receipts travel as text.
func ExampleReceipt_UnmarshalText() {
	text := driver.Receipt{Handle: "01JD2Q", Place: 7, Nonce: 36}.String()
	var receipt driver.Receipt
	err := receipt.UnmarshalText([]byte(text))
	fmt.Println(text, receipt.Place, receipt.Nonce, err)
	// Output:
	// 01JD2Q.7.10 7 36 <nil>
}
