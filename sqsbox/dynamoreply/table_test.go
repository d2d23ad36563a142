package dynamoreply_test

import (
	"context"
	"strconv"
	"sync"
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

func TestOpenOfMissingTableIsNotFound(t *testing.T) {
	server := dynamotest.Shared(t)
	_, err := dynamoreply.Open(t.Context(), server.Client(), "nowhere", nil)
	wantError(t, err, driver.ErrNotFound)
	t.Log(err)
	for _, open := range []func() (driver.ReplyStore, error){
		func() (driver.ReplyStore, error) { return dynamoreply.Open(t.Context(), nil, "table", nil) },
		func() (driver.ReplyStore, error) { return dynamoreply.Open(t.Context(), server.Client(), "", nil) },
	} {
		_, err := open()
		wantError(t, err, driver.ErrInvalid)
	}
}

func TestOpenRefusesATableWithAnotherKey(t *testing.T) {
	client := dynamotest.Shared(t).Client()
	table := dynamotest.Table()
	_, err := client.CreateTable(t.Context(), &dynamodb.CreateTableInput{
		TableName: &table, BillingMode: types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{{AttributeName: aws.String("other"), AttributeType: types.ScalarAttributeTypeS}},
		KeySchema:            []types.KeySchemaElement{{AttributeName: aws.String("other"), KeyType: types.KeyTypeHash}},
	})
	wantError(t, err, nil)
	for {
		now, err := client.DescribeTable(t.Context(), &dynamodb.DescribeTableInput{TableName: &table})
		wantError(t, err, nil)
		if err != nil || now.Table.TableStatus == types.TableStatusActive {
			break
		}
	}
	for _, create := range []bool{false, true} {
		_, err := dynamoreply.Open(t.Context(), client, table, &dynamoreply.Options{CreateTable: create})
		wantError(t, err, driver.ErrInvalid)
	}
}

func TestConcurrentOpensCreateTableOnce(t *testing.T) {
	server := dynamotest.Shared(t)
	table := dynamotest.Table()
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			store, err := dynamoreply.Open(t.Context(), server.Client(), table, &dynamoreply.Options{CreateTable: true})
			wantError(t, err, nil)
			if err == nil {
				_, err = store.Get(t.Context(), "a")
				wantError(t, err, driver.ErrNotFound)
			}
		})
	}
	group.Wait()
	_, err := dynamoreply.Open(t.Context(), server.Client(), table, nil)
	wantError(t, err, nil)
}

// dynalite has no time to live, so the test supplies the responses of DynamoDB.
func TestTimeToLiveIsTurnedOnIfItIsOff(t *testing.T) {
	server := dynamotest.Shared(t)
	describe := func(status, attribute string) fault {
		return fault{
			action: "DescribeTimeToLive",
			answer: `{"TimeToLiveDescription":{"TimeToLiveStatus":"` + status + `","AttributeName":"` + attribute + `"}}`,
		}
	}
	for name, test := range map[string]struct {
		described, updated fault
		updates            int
		want               error
	}{
		"off":           {describe("DISABLED", ""), fault{answer: `{"TimeToLiveSpecification":{"Enabled":true,"AttributeName":"ttl"}}`}, 1, nil},
		"on":            {describe("ENABLED", "ttl"), fault{}, 0, nil},
		"soon":          {describe("ENABLING", "ttl"), fault{}, 0, nil},
		"of another":    {describe("ENABLED", "end"), fault{}, 0, driver.ErrConflict},
		"meanwhile on":  {describe("DISABLED", ""), fault{code: "ValidationException", message: "TimeToLive is already enabled"}, 1, nil},
		"not permitted": {describe("DISABLED", ""), fault{code: "AccessDeniedException"}, 1, driver.ErrForbidden},
		"not allowed":   {fault{action: "DescribeTimeToLive", code: "AccessDeniedException"}, fault{}, 0, driver.ErrForbidden},
		"not there":     {describe("DISABLED", ""), fault{code: "UnknownOperationException"}, 1, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWire(server)
			w.add(test.described)
			test.updated.action = "UpdateTimeToLive"
			w.add(test.updated)
			_, err := dynamoreply.Open(t.Context(), w.client(server), dynamotest.Table(), &dynamoreply.Options{CreateTable: true})
			wantError(t, err, test.want)
			wantEqual(t, "updates", w.count("UpdateTimeToLive"), test.updates)
		})
	}
}

// DynamoDB removes slots no sooner than a minute after their expiry.
func TestTimeToLiveIsOneMinuteAfterExpiry(t *testing.T) {
	server := dynamotest.Shared(t)
	synctest.Test(t, func(t *testing.T) {
		d := newEnv(t, server, nil)
		time.Sleep(123 * time.Millisecond)
		for _, ttl := range []time.Duration{time.Nanosecond, time.Second, time.Hour + 1, driver.MaxSlotTTL} {
			id := ttl.String()
			ends := time.Now().Add(ttl)
			wantError(t, d.store.Create(t.Context(), id, ttl), nil)
			out, err := d.client(d.server).GetItem(t.Context(), &dynamodb.GetItemInput{
				TableName: &d.table, ConsistentRead: aws.Bool(true), Key: map[string]types.AttributeValue{"id": &types.AttributeValueMemberS{Value: id}},
			})
			wantError(t, err, nil)
			seconds, err := strconv.ParseInt(out.Item["ttl"].(*types.AttributeValueMemberN).Value, 10, 64)
			wantError(t, err, nil)
			wantBetween(t, id+": time from expiry until removal is allowed", time.Unix(seconds, 0).Sub(ends), time.Minute, time.Minute+time.Second)
		}
	})
}

func TestTableThatNeverGetsReadyTimesOut(t *testing.T) {
	server := dynamotest.Shared(t)
	synctest.Test(t, func(t *testing.T) {
		w := newWire(server)
		w.virtual = true
		w.add(fault{action: "DescribeTable", answer: `{"Table":{"TableStatus":"CREATING"}}`})
		start := time.Now()
		_, err := dynamoreply.Open(t.Context(), w.client(server), "slow", &dynamoreply.Options{CreateTable: true})
		wantError(t, err, driver.ErrUnavailable)
		wantBetween(t, "time it took", time.Since(start), time.Minute, 3*time.Minute)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = dynamoreply.Open(ctx, w.client(server), "slow", &dynamoreply.Options{CreateTable: true})
		if err != context.DeadlineExceeded { //nolint:errorlint // unwrapped is the promise
			t.Errorf("error is %v", err)
		}
	})
}

func TestTableThatCannotBeCreatedIsAnError(t *testing.T) {
	server := dynamotest.Shared(t)
	for code, want := range map[string]driver.Code{"AccessDeniedException": driver.ErrForbidden, "LimitExceededException": driver.ErrUnavailable} {
		w := newWire(server)
		w.add(fault{action: "CreateTable", code: code})
		_, err := dynamoreply.Open(t.Context(), w.client(server), dynamotest.Table(), &dynamoreply.Options{CreateTable: true})
		wantError(t, err, want)
	}
}
