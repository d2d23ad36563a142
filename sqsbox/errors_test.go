package sqsbox

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/smithy-go"

	"github.com/mailboxmq/mailbox/driver"
)

func TestErrorsOfSQSHaveCodes(t *testing.T) {
	for _, test := range []struct {
		err        error
		want       driver.Code
		retryAfter time.Duration
	}{
		{&types.QueueDoesNotExist{}, driver.ErrNotFound, 0},
		{&types.QueueDoesNotExist{ErrorCodeOverride: aws.String("AWS.SimpleQueueService.NonExistentQueue")}, driver.ErrNotFound, 0},
		{&types.QueueNameExists{}, driver.ErrConflict, 0},
		{&types.QueueDeletedRecently{}, driver.ErrUnavailable, time.Minute},
		{&types.PurgeQueueInProgress{}, driver.ErrFull, time.Minute},
		{&types.OverLimit{}, driver.ErrFull, time.Second},
		{&types.RequestThrottled{}, driver.ErrFull, time.Second},
		{&types.ReceiptHandleIsInvalid{}, driver.ErrReceiptExpired, 0},
		{&types.MessageNotInflight{}, driver.ErrReceiptExpired, 0},
		{&types.BatchRequestTooLong{}, driver.ErrTooLarge, 0},
		{&types.UnsupportedOperation{}, driver.ErrUnsupported, 0},
		{&types.KmsAccessDenied{}, driver.ErrForbidden, 0},
		{&smithy.GenericAPIError{Code: "AccessDenied"}, driver.ErrForbidden, 0},
		{&smithy.GenericAPIError{Code: "SignatureDoesNotMatch"}, driver.ErrUnauthenticated, 0},
		{&smithy.GenericAPIError{Code: "InvalidParameterValue", Message: "Reason: Message must be shorter than 1024 bytes.", Fault: smithy.FaultClient}, driver.ErrTooLarge, 0},
		{&smithy.GenericAPIError{Code: "SomethingNew", Fault: smithy.FaultClient}, driver.ErrInvalid, 0},
		{&smithy.GenericAPIError{Code: "SomethingNew", Fault: smithy.FaultServer}, driver.ErrUnavailable, 0},
		{errors.New("connection refused"), driver.ErrUnavailable, 0},
	} {
		err := driverError(t.Context(), test.err)
		if !errors.Is(err, test.want) || driver.RetryAfter(err) != test.retryAfter {
			t.Errorf("%v: got %v, retry after %v; want %v, %v", test.err, err, driver.RetryAfter(err), test.want, test.retryAfter)
		}
		if !errors.Is(err, test.err) {
			t.Errorf("%v: %v does not wrap it", test.err, err)
		}
	}
}

func TestErrorOfContextStaysBare(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := driverError(ctx, errors.New("operation error SQS: canceled"))
	if err != context.Canceled { //nolint:errorlint // unwrapped is the promise
		t.Errorf("got %v", err)
	}
	if err := driver.Annotate(err, "orders", "send"); err != context.Canceled { //nolint:errorlint // as above
		t.Errorf("got %v", err)
	}
}

func TestBoundedMapDropsOldest(t *testing.T) {
	m := newBoundedMap[int, int](3)
	for i := range 10 {
		m.put(i, i+100)
	}
	for i := range 10 {
		want := 0
		if i >= 7 {
			want = i + 100
		}
		if got := m.get(i); got != want {
			t.Errorf("%d: got %d, want %d", i, got, want)
		}
	}
	if len(m.entries) != 3 || m.age.Len() != 3 {
		t.Errorf("%d and %d entries, want 3", len(m.entries), m.age.Len())
	}
}

func TestExpiredLeasesAreRemoved(t *testing.T) {
	l := newLeases()
	for i := range 5 * fewLeases {
		l.add(leaseKey{"orders", messageID(time.Duration(i).String())}, lease{deadline: time.Now()})
	}
	if n := len(l.byKey); n > 2*fewLeases {
		t.Errorf("%d expired leases are kept", n)
	}
}
