package server_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/mailboxmq/mailbox/server"
)

// A daemon in a test: in memory, on a free port, stopped at the end of the test.
func Example() {
	daemon, err := server.New(server.Config{
		Profile: server.Micronode, Listen: "127.0.0.1:0", ListenOAP: server.Off, LogLevel: "error",
	}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	done := make(chan error, 1)
	go func() { done <- daemon.Run(ctx) }()
	<-daemon.Started()

	request, err := http.NewRequest(http.MethodPost, "http://"+daemon.Address(server.HTTP)+"/v1/send",
		strings.NewReader(`{"topic":"greetings","idem_key":"1","payload_b64":"SGk="}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	request.Header.Set("Authorization", "Bearer "+daemon.OperatorToken().Reveal())
	client := &http.Client{Transport: &http.Transport{}}
	response, err := client.Do(request)
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = response.Body.Close()
	fmt.Println(response.Status)

	client.CloseIdleConnections()
	stop()
	fmt.Println(<-done)
	// Output:
	// 200 OK
	// <nil>
}
