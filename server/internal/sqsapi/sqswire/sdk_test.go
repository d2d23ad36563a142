package sqswire_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"reflect"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/middleware"

	"github.com/mailboxmq/mailbox/server/internal/sqsapi/sqswire"
)

// A stub is a server for the AWS client: it records the request and sends a given
// answer.
type stub struct {
	call   *sqswire.Call
	err    error
	answer func(c *sqswire.Call, w http.ResponseWriter) error
}

func (s *stub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.call, s.err = sqswire.Decode(r, sqswire.RequestLimit)
	if s.err == nil {
		s.err = s.answer(s.call, w)
	} else {
		_ = s.call.Fail(w, s.err)
	}
}

// newSDK returns an AWS client and its server.
func newSDK(t testing.TB) (*sqs.Client, *stub) {
	t.Helper()
	s := new(stub)
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	return sqs.New(sqs.Options{
		BaseEndpoint: aws.String(server.URL),
		Region:       "us-east-1",
		Retryer:      aws.NopRetryer{},
		HTTPClient:   server.Client(),
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "key", SecretAccessKey: "secret"}, nil
		}),
	}), s
}

func TestSDKRoundTripOfEveryAction(t *testing.T) {
	client, server := newSDK(t)
	exchanges := sdkExchanges()
	for _, c := range cases() {
		exchange, ok := exchanges[c.action]
		if !ok {
			t.Errorf("%s is not tested", c.action)
			continue
		}
		fixChecksums(c)
		server.answer = func(call *sqswire.Call, w http.ResponseWriter) error { return call.Answer(w, c.output) }
		got, err := exchange.call(t.Context(), client)
		if err != nil || server.err != nil {
			t.Errorf("%s: the client says %v, the server %v", c.action, err, server.err)
			continue
		}
		if server.call.Action != c.action || !reflect.DeepEqual(server.call.Input, c.input) {
			t.Errorf("%s: the server got\n%#v\nwant\n%#v", c.action, server.call.Input, c.input)
		}
		want := exchange.output
		reflect.ValueOf(got).Elem().FieldByName("ResultMetadata").Set(reflect.ValueOf(middleware.Metadata{}))
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: the client got\n%#v\nwant\n%#v", c.action, got, want)
		}
	}
}

// fixChecksums sets the correct checksums in outputs, which the SDK verifies.
func fixChecksums(c wireCase) {
	switch out := c.output.(type) {
	case *sqswire.SendMessageOutput:
		out.MD5OfMessageBody = sqswire.MD5OfBody(oddText)
	case *sqswire.SendMessageBatchOutput:
		out.Successful[0].MD5OfMessageBody = sqswire.MD5OfBody("one")
	}
}

func TestTheSDKRefusesAWrongChecksum(t *testing.T) {
	client, server := newSDK(t)
	server.answer = func(call *sqswire.Call, w http.ResponseWriter) error {
		return call.Answer(w, &sqswire.SendMessageOutput{MessageID: "1", MD5OfMessageBody: sqswire.MD5OfBody("another")})
	}
	_, err := client.SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: aws.String(queueURL), MessageBody: aws.String("one")})
	if err == nil {
		t.Error("the SDK does not verify the checksum, so the test above shows nothing about it")
	}
}

func TestTheSDKRecognizesErrors(t *testing.T) {
	client, server := newSDK(t)
	for code, recognized := range map[sqswire.Code]func(error) bool{
		sqswire.QueueDoesNotExist:            is[*types.QueueDoesNotExist],
		sqswire.QueueNameExists:              is[*types.QueueNameExists],
		sqswire.QueueDeletedRecently:         is[*types.QueueDeletedRecently],
		sqswire.PurgeQueueInProgress:         is[*types.PurgeQueueInProgress],
		sqswire.EmptyBatchRequest:            is[*types.EmptyBatchRequest],
		sqswire.TooManyEntriesInBatchRequest: is[*types.TooManyEntriesInBatchRequest],
		sqswire.BatchEntryIDsNotDistinct:     is[*types.BatchEntryIdsNotDistinct],
		sqswire.InvalidBatchEntryID:          is[*types.InvalidBatchEntryId],
		sqswire.BatchRequestTooLong:          is[*types.BatchRequestTooLong],
		sqswire.InvalidAttributeName:         is[*types.InvalidAttributeName],
		sqswire.InvalidAttributeValue:        is[*types.InvalidAttributeValue],
		sqswire.ReceiptHandleIsInvalid:       is[*types.ReceiptHandleIsInvalid],
		sqswire.InvalidIDFormat:              is[*types.InvalidIdFormat],
		sqswire.MessageNotInflight:           is[*types.MessageNotInflight],
		sqswire.InvalidMessageContents:       is[*types.InvalidMessageContents],
		sqswire.OverLimit:                    is[*types.OverLimit],
		sqswire.ResourceNotFound:             is[*types.ResourceNotFoundException],
		sqswire.UnsupportedOperation:         is[*types.UnsupportedOperation],
		sqswire.InvalidAddress:               is[*types.InvalidAddress],
		sqswire.InvalidSecurity:              is[*types.InvalidSecurity],
		sqswire.RequestThrottled:             is[*types.RequestThrottled],
		sqswire.InvalidParameterValue:        func(error) bool { return true },
		sqswire.MissingParameter:             func(error) bool { return true },
		sqswire.InternalFailure:              func(error) bool { return true },
	} {
		server.answer = func(call *sqswire.Call, w http.ResponseWriter) error {
			return call.Fail(w, code.Withf("said"))
		}
		_, err := client.PurgeQueue(t.Context(), &sqs.PurgeQueueInput{QueueUrl: aws.String(queueURL)})
		failure, ok := errors.AsType[smithy.APIError](err)
		// The SDK drops the message of two errors.
		silent := code == sqswire.InvalidIDFormat || code == sqswire.MessageNotInflight
		if !ok || failure.ErrorCode() != code.Query() || failure.ErrorMessage() != "said" && !silent {
			t.Errorf("%s arrives as %v", code, err)
		}
		if !recognized(err) {
			t.Errorf("%s arrives as %T", code, failure)
		}
	}
}

func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}
