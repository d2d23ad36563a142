package sqsbox_test

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/sqstest"
	"github.com/mailboxmq/mailbox/sqsbox"
)

// longName is as long as the name of a queue can be.
var longName = strings.Repeat("n", driver.MaxNameBytes)

func newBackend(t *testing.T, api sqsbox.API) *sqsbox.Backend {
	t.Helper()
	backend, err := sqsbox.Open(t.Context(), api, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = backend.Close() })
	return backend
}

func TestAConfigurationBecomesAttributes(t *testing.T) {
	t.Parallel()
	client, prefix := sqstest.Shared(t).Client(), sqstest.Prefix()
	backend := openSite(t, prefix)
	config := driver.Config{
		StrictGroups: true, MaxDeliveries: 3, DeadLetterTo: "dead",
		RetainReady: driver.Retention{Age: time.Hour}, DropExpired: true,
	}
	if err := backend.ConfigureQueue(t.Context(), "orders", config); err != nil {
		t.Fatal(err)
	}
	url, err := client.GetQueueUrl(t.Context(), &sqs.GetQueueUrlInput{QueueName: aws.String(prefix + "orders.fifo")})
	if err != nil {
		t.Fatal(err)
	}
	got, err := client.GetQueueAttributes(t.Context(), &sqs.GetQueueAttributesInput{QueueUrl: url.QueueUrl, AttributeNames: []types.QueueAttributeName{"All"}})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"FifoQueue": "true", "MessageRetentionPeriod": "3600",
		"RedrivePolicy": `{"deadLetterTargetArn":"arn:aws:sqs:us-east-1:000000000000:` + prefix + `dead.fifo","maxReceiveCount":3}`,
	} {
		if got.Attributes[name] != want {
			t.Errorf("%s: got %q, want %q", name, got.Attributes[name], want)
		}
	}
	read, err := backend.QueueConfig(t.Context(), "orders")
	config.DeadLetterTo, config.DedupWindow, config.DedupMax, config.MaxInFlight = "dead.fifo", 5*time.Minute, driver.Off, 120_000
	config = config.Effective()
	if err != nil || read != config {
		t.Errorf("got %+v, %v; want %+v", read, err, config)
	}
	if err := backend.ConfigureQueue(t.Context(), "orders", read); err != nil {
		t.Errorf("what was read cannot be set: %v", err)
	}
	if err := backend.ConfigureQueue(t.Context(), "orders", driver.Config{}); err != nil {
		t.Fatal(err)
	}
	if read, err = backend.QueueConfig(t.Context(), "orders"); err != nil || read.DeadLetterTo != "" || read.RetainReady.Age != time.Hour {
		t.Errorf("after nothing was set: got %+v, %v; want the retention that it had", read, err)
	}
	if err := backend.ConfigureQueue(t.Context(), "orders", driver.Config{RetainReady: driver.Retention{Age: driver.Off}}); err != nil {
		t.Fatal(err)
	}
	if read, err = backend.QueueConfig(t.Context(), "orders"); err != nil || read.RetainReady.Age != 14*24*time.Hour {
		t.Errorf("after the retention was turned off: got %+v, %v; want the longest of SQS", read, err)
	}
}

func TestUnsupportedSettingsAreRefusedByName(t *testing.T) {
	backend := newBackend(t, &stub{})
	for field, config := range map[string]driver.Config{
		"Shards":            {Shards: 2},
		"MaxMessages":       {MaxMessages: 1},
		"MaxBytes":          {MaxBytes: 1},
		"MaxInFlight":       {MaxInFlight: 10},
		"MaxDead":           {MaxDead: 1},
		"DedupWindow":       {DedupWindow: 5 * time.Minute},
		"DedupMax":          {StrictGroups: true, DedupMax: 1},
		"RetainReady.Count": {RetainReady: driver.Retention{Count: 1}},
		"RetainReady.Age":   {RetainReady: driver.Retention{Age: time.Hour}},
		"RetainDead":        {RetainDead: driver.Retention{Age: time.Hour}},
		"MaxHold":           {MaxHold: time.Hour},
		"TTL":               {TTL: time.Hour},
		"Annotation":        {Annotation: "x"},
		"MaxDeliveries":     {MaxDeliveries: 1},
		"DeadLetterTo":      {DeadLetterTo: "dead"},
		"StrictGroups":      {StrictGroups: true}, // there is a standard queue of this name
	} {
		err := backend.ConfigureQueue(t.Context(), "orders", config)
		if e, ok := errors.AsType[*driver.Error](err); !ok || e.Code != driver.ErrUnsupported || e.Field != field {
			t.Errorf("%+v: got %v, want ErrUnsupported of %s", config, err, field)
		}
	}
	for _, config := range []driver.Config{
		{StrictGroups: true, DedupWindow: time.Hour},
		{MaxDeliveries: 1001, DeadLetterTo: "dead"},
		{DropExpired: true, RetainReady: driver.Retention{Age: time.Second}},
		{DropExpired: true, RetainReady: driver.Retention{Age: 15 * 24 * time.Hour}},
		{DropExpired: true, RetainReady: driver.Retention{Age: time.Hour + 1}},
	} {
		if err := backend.ConfigureQueue(t.Context(), "orders", config); !errors.Is(err, driver.ErrUnsupported) {
			t.Errorf("%+v: got %v, want ErrUnsupported", config, err)
		}
	}
}

func TestOpenCreatesMissingQueueOnlyOnRequest(t *testing.T) {
	t.Parallel()
	prefix := sqstest.Prefix()
	backend, err := sqsbox.Open(t.Context(), sqstest.Shared(t).Client(), &sqsbox.Options{Prefix: prefix})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = backend.Close() }()
	if _, err := backend.OpenQueue(t.Context(), "orders"); !errors.Is(err, driver.ErrNotFound) {
		t.Errorf("opening a queue that is not there: got %v, want ErrNotFound", err)
	}
	if err := backend.ConfigureQueue(t.Context(), "orders", driver.Config{}); err != nil {
		t.Fatal(err)
	}
	queue, err := backend.OpenQueue(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	if err := queue.Close(); err != nil {
		t.Error(err)
	}
}

func TestLongNamesAreListed(t *testing.T) {
	t.Parallel()
	site := openSite(t, sqstest.Prefix())
	want := map[string]bool{"short": true, "tenant/user:42": true, longName: true}
	for name := range want {
		if _, err := site.OpenQueue(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	got := make(map[string]bool)
	for name, err := range site.Queues(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		got[name] = true
	}
	if !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestTheQueuesOwnSizeLimitHolds(t *testing.T) {
	api := &stub{attributes: map[string]string{"MaximumMessageSize": "2048"}}
	api.send = func(_ context.Context, _ int, in *sqs.SendMessageBatchInput) (*sqs.SendMessageBatchOutput, error) {
		return takeAll(in), nil
	}
	_, queue := openStub(t, api, "orders")
	for size, want := range map[int]error{2048: nil, 2049: driver.ErrTooLarge} {
		body := make([]byte, size)
		for i := range body {
			body[i] = 'x'
		}
		if _, err := queue.Send(t.Context(), []driver.Outgoing{{Body: body}}); !errors.Is(err, want) || (err == nil) != (want == nil) {
			t.Errorf("%d bytes of text: got %v, want %v", size, err, want)
		}
	}
	most := queue.Traits().MaxBodyBytes
	for size, want := range map[int]error{most: nil, most + 1: driver.ErrTooLarge} {
		if _, err := queue.Send(t.Context(), []driver.Outgoing{{Body: make([]byte, size)}}); !errors.Is(err, want) || (err == nil) != (want == nil) {
			t.Errorf("%d bytes: got %v, want %v", size, err, want)
		}
	}
	_, err := queue.Send(t.Context(), []driver.Outgoing{{Body: []byte("x"), Attributes: map[string]string{"a": string(make([]byte, 2000))}}})
	if !errors.Is(err, driver.ErrTooLarge) || api.called("send") != 2 {
		t.Errorf("attributes count too: got %v", err)
	}
}
