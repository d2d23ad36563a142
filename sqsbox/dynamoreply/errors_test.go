package dynamoreply_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/dynamotest"
	"github.com/mailboxmq/mailbox/sqsbox/dynamoreply"
)

// operations are all operations of a store, for the slots that prepare creates.
var operations = map[string]func(ctx context.Context, store driver.ReplyStore) error{
	"create":  func(ctx context.Context, s driver.ReplyStore) error { return s.Create(ctx, "new", time.Hour) },
	"resolve": func(ctx context.Context, s driver.ReplyStore) error { return s.Resolve(ctx, "open", tea("yes")) },
	"cancel":  func(ctx context.Context, s driver.ReplyStore) error { return s.Cancel(ctx, "open") },
	"get":     func(ctx context.Context, s driver.ReplyStore) error { _, err := s.Get(ctx, "a"); return err },
	"wait": func(ctx context.Context, s driver.ReplyStore) error {
		_, err := s.Wait(ctx, "a", time.Hour)
		return err
	},
	"consume": func(ctx context.Context, s driver.ReplyStore) error { _, err := s.Consume(ctx, "a"); return err },
	"delete":  func(ctx context.Context, s driver.ReplyStore) error { return s.Delete(ctx, "a") },
	"expired": func(ctx context.Context, s driver.ReplyStore) error { _, err := s.Expired(ctx, 1); return err },
	"sweep":   func(ctx context.Context, s driver.ReplyStore) error { _, err := s.Sweep(ctx, 1); return err },
}

// prepare creates the slots that operations use: "a" is answered, "open" is pending.
func prepare(t *testing.T, d *env) {
	t.Helper()
	create(t, d.store, "a")
	create(t, d.store, "open")
	wantError(t, d.store.Resolve(t.Context(), "a", tea("yes")), nil)
}

func TestErrorsOfDynamoHaveCodes(t *testing.T) {
	for _, test := range []struct {
		name string
		fault
		want  driver.Code
		tells string
		sent  int // how often the request is sent
	}{
		{"no table", fault{code: "ResourceNotFoundException", message: "Requested resource not found"}, driver.ErrUnavailable, "there is no table", 1},
		{"no permission", fault{code: "AccessDeniedException", message: "User is not authorized to perform: dynamodb:PutItem"}, driver.ErrForbidden, "not authorized", 1},
		{"no credentials", fault{code: "UnrecognizedClientException", message: "The security token is invalid"}, driver.ErrUnauthenticated, "token is invalid", 1},
		{"old credentials", fault{code: "ExpiredTokenException", message: "The security token has expired"}, driver.ErrUnauthenticated, "has expired", 1},
		{"too little capacity", fault{code: "ProvisionedThroughputExceededException"}, driver.ErrUnavailable, "too little capacity", dynamoreply.DefaultAttempts},
		{"throttled", fault{code: "ThrottlingException"}, driver.ErrUnavailable, "too little capacity", dynamoreply.DefaultAttempts},
		{"over the account's limit", fault{code: "RequestLimitExceeded"}, driver.ErrUnavailable, "too little capacity", dynamoreply.DefaultAttempts},
		{"a mistake", fault{code: "ValidationException", message: "The provided key element does not match the schema"}, driver.ErrInvalid, "does not match the schema", 1},
		{"something new", fault{code: "SurprisingException", message: "who would have thought"}, driver.ErrUnavailable, "who would have thought", 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			server := dynamotest.Shared(t)
			synctest.Test(t, func(t *testing.T) {
				d := newEnv(t, server, nil)
				prepare(t, d)
				for name, operation := range operations {
					d.add(test.fault)
					sent, start := d.total(), time.Now()
					err := operation(t.Context(), d.store)
					wantError(t, err, test.want)
					e, ok := errors.AsType[*driver.Error](err)
					if !ok || !strings.Contains(err.Error(), test.tells) || e.Op == "" || e.Err == nil {
						t.Errorf("%s: the error does not say %q: %v", name, test.tells, err)
					}
					if errors.Is(err, driver.ErrNotFound) {
						t.Errorf("%s: the error means that the slot is gone: %v", name, err)
					}
					if busy := test.sent > 1; busy != (driver.RetryAfter(err) > 0) {
						t.Errorf("%s: RetryAfter is %v", name, driver.RetryAfter(err))
					}
					wantEqual(t, name+": requests", d.total()-sent, test.sent)
					wantBetween(t, name+": time it took", time.Since(start), 0, 5*time.Second)
					d.clear()
				}
			})
		})
	}
}

func TestThrottledRequestsAreRepeated(t *testing.T) {
	server := dynamotest.Shared(t)
	synctest.Test(t, func(t *testing.T) {
		d := newEnv(t, server, nil)
		for name, operation := range operations {
			prepare(t, d)
			d.add(fault{code: "ProvisionedThroughputExceededException", times: dynamoreply.DefaultAttempts - 1})
			wantError(t, operation(t.Context(), d.store), nil)
			d.clear()
			for _, id := range []string{"a", "open", "new"} {
				if err := d.store.Delete(t.Context(), id); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
		}
	})
}

// A request whose response gets lost may have been carried out. Its repetition
// must recognize its own write.
func TestRepeatedWriteRecognizesItsOwnFirstAttempt(t *testing.T) {
	for _, shows := range []bool{true, false} {
		t.Run(fmt.Sprintf("item is returned %v", shows), func(t *testing.T) {
			server := dynamotest.Shared(t)
			synctest.Test(t, func(t *testing.T) {
				d := newEnv(t, server, nil)
				d.shows = shows
				for _, lost := range []fault{{times: 1, late: true}, {times: 1, late: true, code: "InternalServerError", status: 500}} {
					prepare(t, d)
					for _, name := range []string{"create", "resolve", "delete"} {
						d.add(lost)
						if err := operations[name](t.Context(), d.store); err != nil {
							t.Errorf("%s whose response got lost: %v", name, err)
						}
						d.clear()
					}
					slot, err := d.store.Get(t.Context(), "open")
					wantError(t, err, nil)
					wantEqual(t, "answer", string(slot.Answer.Body), "yes")
					wantError(t, d.store.Resolve(t.Context(), "open", tea("yes")), driver.ErrReplyAlreadySent)
					d.add(lost)
					wantError(t, d.store.Cancel(t.Context(), "new"), nil)
					d.clear()
					wantError(t, d.store.Resolve(t.Context(), "new", tea("yes")), driver.ErrReplyCancelled)
					for _, id := range []string{"open", "new"} {
						wantError(t, d.store.Delete(t.Context(), id), nil)
					}
				}
			})
		})
	}
}

func TestConsumeWithoutResponseIsNotRepeated(t *testing.T) {
	server := dynamotest.Shared(t)
	synctest.Test(t, func(t *testing.T) {
		d := newEnv(t, server, nil)
		prepare(t, d)
		d.add(fault{action: "DeleteItem", late: true})
		sent := d.count("DeleteItem")
		_, err := d.store.Consume(t.Context(), "a")
		wantError(t, err, driver.ErrUnavailable)
		wantEqual(t, "requests", d.count("DeleteItem")-sent, 1)
	})
}

func TestRequestsOnBrokenConnectionsAreRepeated(t *testing.T) {
	server := dynamotest.Shared(t)
	synctest.Test(t, func(t *testing.T) {
		d := newEnv(t, server, nil)
		prepare(t, d)
		d.add(fault{times: dynamoreply.DefaultAttempts - 1})
		slot, err := d.store.Get(t.Context(), "a")
		wantError(t, err, nil)
		wantEqual(t, "state", slot.State, driver.SlotResolved)
		d.add(fault{})
		_, err = d.store.Get(t.Context(), "a")
		wantError(t, err, driver.ErrUnavailable)
		wantError(t, err, errCut)
	})
}

func TestPausesEndWithTheContext(t *testing.T) {
	server := dynamotest.Shared(t)
	synctest.Test(t, func(t *testing.T) {
		d := newEnv(t, server, &dynamoreply.Options{Attempts: 1000})
		d.add(fault{code: "ThrottlingException"})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		start := time.Now()
		_, err := d.store.Get(ctx, "a")
		if err != context.DeadlineExceeded { //nolint:errorlint // unwrapped is the promise
			t.Errorf("error is %v", err)
		}
		wantEqual(t, "time it took", time.Since(start), 10*time.Second)
	})
}

func TestServerThatHangsIsUnavailable(t *testing.T) {
	server := dynamotest.Shared(t)
	synctest.Test(t, func(t *testing.T) {
		d := newEnv(t, server, nil)
		prepare(t, d)
		d.add(fault{hangs: true})
		for name, operation := range operations {
			sent, start := d.total(), time.Now()
			wantError(t, operation(t.Context(), d.store), driver.ErrUnavailable)
			attempts := d.total() - sent
			if want := dynamoreply.DefaultAttempts; name != "consume" {
				wantEqual(t, name+": requests", attempts, want)
			}
			least := time.Duration(attempts) * dynamoreply.DefaultTimeout
			wantBetween(t, name+": time it took", time.Since(start), least, least+5*time.Second)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := d.store.Get(ctx, "a")
		if err != context.DeadlineExceeded { //nolint:errorlint // unwrapped is the promise
			t.Errorf("error is %v", err)
		}
		d.clear()
		_, err = d.store.Get(t.Context(), "a")
		wantError(t, err, nil)
	})
}

func TestAnswersAreBounded(t *testing.T) {
	server := dynamotest.Shared(t)
	synctest.Test(t, func(t *testing.T) {
		d := newEnv(t, server, nil)
		id := strings.Repeat("x", driver.MaxNameBytes)
		create(t, d.store, id)
		large := bytes.Repeat([]byte{7}, dynamoreply.MaxAnswerBytes)
		for name, answer := range map[string]driver.Answer{
			"body":    {Body: append(large, 7)},
			"failure": {Failure: string(large), FailureKind: "x"},
		} {
			err := d.store.Resolve(t.Context(), id, answer)
			wantError(t, err, driver.ErrTooLarge)
			if limit := fmt.Sprint(dynamoreply.MaxAnswerBytes); err == nil || !strings.Contains(err.Error(), limit) {
				t.Errorf("%s: the error does not name the limit of %s: %v", name, limit, err)
			}
		}
		wantError(t, d.store.Resolve(t.Context(), id, driver.Answer{Body: large}), nil)
		slot, err := d.store.Get(t.Context(), id)
		wantError(t, err, nil)
		wantEqual(t, "bytes", len(slot.Answer.Body), len(large))

		create(t, d.store, "b")
		d.add(fault{action: "UpdateItem", code: "ValidationException", message: "Item size to update has exceeded the maximum allowed size"})
		wantError(t, d.store.Resolve(t.Context(), "b", tea("yes")), driver.ErrTooLarge)
	})
}

func TestForeignItemsAreIntegrityErrors(t *testing.T) {
	server := dynamotest.Shared(t)
	synctest.Test(t, func(t *testing.T) {
		d := newEnv(t, server, nil)
		s := func(value string) types.AttributeValue { return &types.AttributeValueMemberS{Value: value} }
		n := func(value string) types.AttributeValue { return &types.AttributeValueMemberN{Value: value} }
		const late = "4000000000000000000"
		for id, item := range map[string]map[string]types.AttributeValue{
			"bare":     {},
			"state":    {"state": s("lost"), "maker": s("m"), "created": n("1"), "expires": n(late)},
			"number":   {"state": s("pending"), "maker": s("m"), "created": n("1.5"), "expires": n(late)},
			"text":     {"state": s("pending"), "maker": s("m"), "created": s("1"), "expires": n(late)},
			"maker":    {"state": s("pending"), "maker": n("1"), "created": n("1"), "expires": n(late)},
			"body":     {"state": s("resolved"), "maker": s("m"), "created": n("1"), "resolved": n("1"), "expires": n(late), "body": s("b")},
			"resolved": {"state": s("resolved"), "maker": s("m"), "created": n("1"), "expires": n(late)},
		} {
			item["id"] = s(id)
			_, err := d.client(d.server).PutItem(t.Context(), &dynamodb.PutItemInput{TableName: aws.String(d.table), Item: item})
			wantError(t, err, nil)
			_, err = d.store.Get(t.Context(), id)
			wantError(t, err, driver.ErrIntegrity)
			_, err = d.store.Wait(t.Context(), id, time.Hour)
			wantError(t, err, driver.ErrIntegrity)
		}
	})
}
