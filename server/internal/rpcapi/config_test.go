package rpcapi_test

import (
	"testing"

	"connectrpc.com/connect"

	"github.com/mailboxmq/mailbox/driver"
	mailboxv1 "github.com/mailboxmq/mailbox/gen/mailbox/v1"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

func TestClientsThatDoNotKnowASettingKeepIt(t *testing.T) {
	d := newDaemon(t, membox.New(nil), broker.Limits{})
	o := newRPCOpener(d, d.mint(t, ""), connect.WithGRPC())
	want := driver.Config{FairGroups: true, DropExpired: true, Annotation: "of the shop"}
	if err := o.ConfigureQueue(t.Context(), "orders", want); err != nil {
		t.Fatal(err)
	}
	for _, config := range []*mailboxv1.TopicConfig{{MaxMessages: told[int64](10)}, nil} {
		if _, err := o.maker.Configure(t.Context(), &mailboxv1.ConfigureRequest{Topic: "orders", Config: config}); err != nil {
			t.Fatal(err)
		}
		got, err := o.QueueConfig(t.Context(), "orders")
		if err != nil || !got.FairGroups || !got.DropExpired || got.Annotation != want.Annotation {
			t.Errorf("after a change with %v: got %+v, %v", config, got, err)
		}
	}
}
