package remotebox_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/remotebox"
)

// A client does no I/O before it is used, so it can be made before its daemon is
// there. What it is asked then waits for the daemon for a while.
func ExampleNew() {
	backend := remotebox.New([]string{"127.0.0.1:1"}, "", &remotebox.Options{Patience: time.Millisecond})
	defer backend.Close()

	err := backend.Ping(context.Background())
	fmt.Println(errors.Is(err, driver.ErrUnavailable), driver.RetryAfter(err))
	// Output:
	// true 50ms
}

// Without encryption a token is not sent to another machine.
func ExampleOptions() {
	backend := remotebox.New([]string{"queues.example.com:9411"}, "", nil)
	defer backend.Close()

	_, err := backend.OpenQueue(context.Background(), "orders")
	fmt.Println(err)
	// Output:
	// mailbox: open: invalid argument: address: is not on this machine, and without TLS everybody on the way can read the token
}

// Daemons are a scheme for addresses. A token is only shown to the daemon that it
// is for.
func ExampleURLOpener() {
	open, closeAll := remotebox.URLOpener(map[string]string{"10.0.0.7:9411": "…"}, nil)
	defer closeAll()

	address, _ := url.Parse("mailbox://10.6.6.6:9411/orders")
	_, err := open(context.Background(), address)
	fmt.Println(err)
	// Output:
	// mailbox: open: forbidden: host: there is no token for this daemon
}
