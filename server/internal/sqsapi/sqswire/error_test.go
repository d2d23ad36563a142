package sqswire_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/mailboxmq/mailbox/server/internal/sqsapi/sqswire"
)

// errorFacts are the errors as AWS answers them.
var errorFacts = []struct {
	code   sqswire.Code
	query  string
	shape  string
	status int
}{
	{sqswire.QueueDoesNotExist, "AWS.SimpleQueueService.NonExistentQueue", "com.amazonaws.sqs#QueueDoesNotExist", 400},
	{sqswire.QueueNameExists, "QueueAlreadyExists", "com.amazonaws.sqs#QueueNameExists", 400},
	{sqswire.QueueDeletedRecently, "AWS.SimpleQueueService.QueueDeletedRecently", "com.amazonaws.sqs#QueueDeletedRecently", 400},
	{sqswire.PurgeQueueInProgress, "AWS.SimpleQueueService.PurgeQueueInProgress", "com.amazonaws.sqs#PurgeQueueInProgress", 403},
	{sqswire.EmptyBatchRequest, "AWS.SimpleQueueService.EmptyBatchRequest", "com.amazonaws.sqs#EmptyBatchRequest", 400},
	{sqswire.TooManyEntriesInBatchRequest, "AWS.SimpleQueueService.TooManyEntriesInBatchRequest", "com.amazonaws.sqs#TooManyEntriesInBatchRequest", 400},
	{sqswire.BatchEntryIDsNotDistinct, "AWS.SimpleQueueService.BatchEntryIdsNotDistinct", "com.amazonaws.sqs#BatchEntryIdsNotDistinct", 400},
	{sqswire.InvalidBatchEntryID, "AWS.SimpleQueueService.InvalidBatchEntryId", "com.amazonaws.sqs#InvalidBatchEntryId", 400},
	{sqswire.BatchRequestTooLong, "AWS.SimpleQueueService.BatchRequestTooLong", "com.amazonaws.sqs#BatchRequestTooLong", 400},
	{sqswire.MissingParameter, "MissingParameter", "com.amazon.coral.service#MissingRequiredParameterException", 400},
	{sqswire.InvalidParameterValue, "InvalidParameterValue", "com.amazon.coral.service#InvalidParameterValueException", 400},
	{sqswire.InvalidAttributeName, "InvalidAttributeName", "com.amazonaws.sqs#InvalidAttributeName", 400},
	{sqswire.InvalidAttributeValue, "InvalidAttributeValue", "com.amazonaws.sqs#InvalidAttributeValue", 400},
	{sqswire.ReceiptHandleIsInvalid, "ReceiptHandleIsInvalid", "com.amazonaws.sqs#ReceiptHandleIsInvalid", 404},
	{sqswire.InvalidIDFormat, "InvalidIdFormat", "com.amazonaws.sqs#InvalidIdFormat", 400},
	{sqswire.MessageNotInflight, "AWS.SimpleQueueService.MessageNotInflight", "com.amazonaws.sqs#MessageNotInflight", 400},
	{sqswire.InvalidMessageContents, "InvalidMessageContents", "com.amazonaws.sqs#InvalidMessageContents", 400},
	{sqswire.OverLimit, "OverLimit", "com.amazonaws.sqs#OverLimit", 403},
	{sqswire.ResourceNotFound, "ResourceNotFoundException", "com.amazonaws.sqs#ResourceNotFoundException", 404},
	{sqswire.UnsupportedOperation, "AWS.SimpleQueueService.UnsupportedOperation", "com.amazonaws.sqs#UnsupportedOperation", 400},
	{sqswire.InvalidAddress, "InvalidAddress", "com.amazonaws.sqs#InvalidAddress", 404},
	{sqswire.InvalidSecurity, "InvalidSecurity", "com.amazonaws.sqs#InvalidSecurity", 403},
	{sqswire.RequestThrottled, "RequestThrottled", "com.amazonaws.sqs#RequestThrottled", 403},
	{sqswire.UnknownOperation, "InvalidAction", "com.amazon.coral.service#UnknownOperationException", 400},
	{sqswire.Serialization, "MalformedInput", "com.amazon.coral.service#SerializationException", 400},
	{sqswire.MalformedInput, "MalformedInput", "com.amazon.coral.service#MalformedInput", 400},
	{sqswire.RequestTooLarge, "RequestEntityTooLarge", "com.amazon.coral.service#RequestEntityTooLarge", 413},
	{sqswire.AccessDenied, "AccessDenied", "com.amazon.coral.service#AccessDeniedException", 403},
	{sqswire.MissingAuthenticationToken, "MissingAuthenticationToken", "com.amazon.coral.service#MissingAuthenticationTokenException", 403},
	{sqswire.IncompleteSignature, "IncompleteSignature", "com.amazon.coral.service#IncompleteSignatureException", 400},
	{sqswire.InvalidSignature, "SignatureDoesNotMatch", "com.amazon.coral.service#InvalidSignatureException", 403},
	{sqswire.UnrecognizedClient, "InvalidClientTokenId", "com.amazon.coral.service#UnrecognizedClientException", 403},
	{sqswire.ExpiredToken, "ExpiredToken", "com.amazon.coral.service#ExpiredTokenException", 403},
	{sqswire.RequestExpired, "RequestExpired", "com.amazon.coral.service#RequestExpired", 400},
	{sqswire.InternalFailure, "InternalFailure", "com.amazon.coral.service#InternalFailure", 500},
	{sqswire.ServiceUnavailable, "ServiceUnavailable", "com.amazon.coral.service#ServiceUnavailable", 503},
	{sqswire.Throttling, "Throttling", "com.amazon.coral.service#ThrottlingException", 400},
}

func TestErrorsHaveTheirCodesInAllProtocols(t *testing.T) {
	for _, fact := range errorFacts {
		failure := fact.code.Default()
		if failure.Message == "" {
			t.Errorf("%s has no words", fact.code)
		}
		failure.Message, failure.QueryMessage = "<said>", ""
		fault := "Sender"
		if fact.status >= 500 {
			fault = "Receiver"
		}
		for protocol, want := range map[sqswire.Protocol]string{
			sqswire.JSON:      fmt.Sprintf(`{"__type":"%s","message":"<said>"}`, fact.shape),
			sqswire.QueryJSON: fmt.Sprintf(`{"Error":{"Code":"%s","Detail":null,"Message":"<said>","Type":"%s"},"RequestId":"id"}`, fact.query, fault),
			sqswire.Query: fmt.Sprintf(`<?xml version="1.0"?><ErrorResponse xmlns="http://queue.amazonaws.com/doc/2012-11-05/"><Error><Type>%s</Type><Code>%s</Code><Message>&lt;said&gt;</Message><Detail/></Error><RequestId>id</RequestId></ErrorResponse>`,
				fault, fact.query),
		} {
			call := &sqswire.Call{Action: sqswire.SendMessage, Protocol: protocol, RequestID: "id"}
			w := httptest.NewRecorder()
			if err := call.Fail(w, fmt.Errorf("wrapped: %w", failure)); err != nil {
				t.Fatal(err)
			}
			if w.Code != fact.status || w.Body.String() != want {
				t.Errorf("%s in protocol %d: %d %s\nwant %d %s", fact.code, protocol, w.Code, w.Body, fact.status, want)
			}
			hint := ""
			if protocol == sqswire.JSON {
				hint = fact.query + ";" + fault
			}
			if got := w.Header().Get("x-amzn-query-error"); got != hint {
				t.Errorf("%s in protocol %d: x-amzn-query-error is %q", fact.code, protocol, got)
			}
			if w.Header().Get("x-amzn-RequestId") != "id" {
				t.Errorf("%s: no request id in the header", fact.code)
			}
		}
		if entry := failure.Entry("e"); entry != (sqswire.BatchResultErrorEntry{ID: "e", Code: fact.query, Message: "<said>", SenderFault: fault == "Sender"}) {
			t.Errorf("%s is the entry %+v", fact.code, entry)
		}
		if !errors.Is(failure, fact.code) || errors.Is(failure, sqswire.Code("another")) {
			t.Errorf("%s is not recognized by errors.Is", fact.code)
		}
	}
}

func TestOnlyQueryMentionsTheVersion(t *testing.T) {
	for protocol, want := range map[sqswire.Protocol]string{
		sqswire.JSON:      `"The specified queue does not exist."`,
		sqswire.Query:     `>The specified queue does not exist for this wsdl version.<`,
		sqswire.QueryJSON: `"The specified queue does not exist for this wsdl version."`,
	} {
		w := httptest.NewRecorder()
		call := &sqswire.Call{Action: sqswire.SendMessage, Protocol: protocol}
		if err := call.Fail(w, sqswire.QueueDoesNotExist.Default()); err != nil || !strings.Contains(w.Body.String(), want) {
			t.Errorf("protocol %d: %s, %v", protocol, w.Body, err)
		}
	}
}

func TestForeignErrorsAreNotDisclosed(t *testing.T) {
	w := httptest.NewRecorder()
	call := &sqswire.Call{Action: sqswire.SendMessage}
	if err := call.Fail(w, errors.New("disk /dev/sda is on fire")); err != nil {
		t.Fatal(err)
	}
	if w.Code != http.StatusInternalServerError || strings.Contains(w.Body.String(), "fire") || !strings.Contains(w.Body.String(), "InternalFailure") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func TestACodeThatIsNotInTheTableIsAnswered(t *testing.T) {
	w := httptest.NewRecorder()
	call := &sqswire.Call{Action: sqswire.SendMessage}
	if err := call.Fail(w, sqswire.Code("Strange").Withf("said")); err != nil {
		t.Fatal(err)
	}
	if w.Code != 400 || w.Header().Get("x-amzn-query-error") != "Strange;Sender" {
		t.Errorf("%d %v", w.Code, w.Header())
	}
}
