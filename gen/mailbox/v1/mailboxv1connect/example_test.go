package mailboxv1connect_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	mailboxv1 "github.com/mailboxmq/mailbox/gen/mailbox/v1"
	"github.com/mailboxmq/mailbox/gen/mailbox/v1/mailboxv1connect"
)

// standIn answers as a daemon would.
type standIn struct {
	mailboxv1connect.UnimplementedMailboxHandler
}

func (standIn) Send(_ context.Context, r *mailboxv1.SendRequest) (*mailboxv1.SendResponse, error) {
	response := &mailboxv1.SendResponse{}
	for range r.GetMessages() {
		response.Results = append(response.Results, &mailboxv1.SendResult{MsgId: "01ARZ3NDEKTSV4RRFFQ69G5FAV"})
	}
	return response, nil
}

// A client needs the address of a daemon, and for a real one a token in the
// metadata, which connect.WithInterceptors adds to each call.
func ExampleNewMailboxClient() {
	_, handler := mailboxv1connect.NewMailboxHandler(standIn{})
	daemon := httptest.NewServer(handler)
	defer daemon.Close()

	client := mailboxv1connect.NewMailboxClient(http.DefaultClient, daemon.URL)
	sent, err := client.Send(context.Background(), &mailboxv1.SendRequest{
		Topic:    "orders",
		Messages: []*mailboxv1.Outgoing{{Payload: []byte("hello"), IdemKey: "order-7"}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(sent.GetResults()[0].GetMsgId())
	// Output: 01ARZ3NDEKTSV4RRFFQ69G5FAV
}
