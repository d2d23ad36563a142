package dynamoreply

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/backoff"
)

const (
	// createTimeout bounds how long creating a table may take. It usually takes seconds.
	createTimeout = 2 * time.Minute
	createPoll    = 200 * time.Millisecond
)

// createTable creates the table if it does not exist, waits until it is usable,
// and turns on its time to live. Other processes may do the same concurrently.
func (s *store) createTable(ctx context.Context) error {
	creating := request{op: opOpen}
	bounded, cancel := context.WithTimeout(ctx, createTimeout)
	defer cancel()
	for {
		table, err := call(bounded, s, creating, s.client.DescribeTable, &dynamodb.DescribeTableInput{TableName: &s.table})
		switch {
		case err == nil && usable(table.Table.TableStatus):
			return s.enableTTL(ctx)
		case errors.Is(err, driver.ErrNotFound):
			err = s.requestTable(bounded)
		}
		if err == nil {
			err = backoff.Pause(bounded, createPoll)
		}
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case bounded.Err() != nil:
			late := s.newError(creating, failed, bounded.Err())
			return fmt.Errorf("table %s is not usable %v after its creation: %w", s.table, createTimeout, late)
		case err != nil:
			return err
		}
	}
}

func usable(status types.TableStatus) bool {
	return status == types.TableStatusActive || status == types.TableStatusUpdating
}

func (s *store) requestTable(ctx context.Context) error {
	_, err := call(ctx, s, request{op: opOpen}, s.client.CreateTable, &dynamodb.CreateTableInput{
		TableName:            &s.table,
		BillingMode:          types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{{AttributeName: aws.String(attributeID), AttributeType: types.ScalarAttributeTypeS}},
		KeySchema:            []types.KeySchemaElement{{AttributeName: aws.String(attributeID), KeyType: types.KeyTypeHash}},
	})
	if _, exists := errors.AsType[*types.ResourceInUseException](err); exists {
		return nil // another process was faster
	}
	return err
}

// enableTTL makes DynamoDB remove expired slots. A table that does so already is
// left alone: DynamoDB limits how often the setting may change.
func (s *store) enableTTL(ctx context.Context) error {
	now, err := call(ctx, s, request{op: opOpen}, s.client.DescribeTimeToLive, &dynamodb.DescribeTimeToLiveInput{TableName: &s.table})
	if err != nil {
		return noTTL(err)
	}
	if d := now.TimeToLiveDescription; d != nil && (d.TimeToLiveStatus == types.TimeToLiveStatusEnabled || d.TimeToLiveStatus == types.TimeToLiveStatusEnabling) {
		if aws.ToString(d.AttributeName) == attributeTTL {
			return nil
		}
		return &driver.Error{
			Code: driver.ErrConflict, Op: opOpen, Queue: s.table,
			Detail: fmt.Sprintf("time to live of the table uses the attribute %q; want %q", aws.ToString(d.AttributeName), attributeTTL),
		}
	}
	_, err = call(ctx, s, request{op: opOpen}, s.client.UpdateTimeToLive, &dynamodb.UpdateTimeToLiveInput{
		TableName: &s.table,
		TimeToLiveSpecification: &types.TimeToLiveSpecification{
			AttributeName: aws.String(attributeTTL), Enabled: aws.Bool(true),
		},
	})
	if refusal, ok := errors.AsType[smithy.APIError](err); ok && strings.Contains(refusal.ErrorMessage(), "already enabled") {
		return nil // another process was faster
	}
	return noTTL(err)
}

// noTTL ignores the error of test servers that have no time to live. DynamoDB
// itself always has it.
func noTTL(err error) error {
	if refusal, ok := errors.AsType[smithy.APIError](err); ok && refusal.ErrorCode() == "UnknownOperationException" {
		return nil
	}
	return err
}
