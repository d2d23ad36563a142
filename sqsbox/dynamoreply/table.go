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
)

const (
	// tableWithin bounds how long creating a table may take. It takes seconds.
	tableWithin = 2 * time.Minute
	tablePause  = 200 * time.Millisecond
)

// createTable creates the table if it is not there, waits until it can be used,
// and sees to its time to live. Others may do the same at the same time.
func (s *Store) createTable(ctx context.Context) error {
	creating := request{op: opOpen}
	patience, cancel := context.WithTimeout(ctx, tableWithin)
	defer cancel()
	for {
		table, err := call(patience, s, creating, s.client.DescribeTable, &dynamodb.DescribeTableInput{TableName: &s.table})
		switch {
		case err == nil && usable(table.Table.TableStatus):
			return s.enableTTL(ctx)
		case errors.Is(err, driver.ErrNotFound):
			err = s.makeTable(patience)
		}
		if err == nil {
			err = pause(patience, tablePause)
		}
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case patience.Err() != nil:
			late := s.failure(creating, broken, patience.Err())
			return fmt.Errorf("table %s is still not there after %v: %w", s.table, tableWithin, late)
		case err != nil:
			return err
		}
	}
}

func usable(status types.TableStatus) bool {
	return status == types.TableStatusActive || status == types.TableStatusUpdating
}

func (s *Store) makeTable(ctx context.Context) error {
	_, err := call(ctx, s, request{op: opOpen}, s.client.CreateTable, &dynamodb.CreateTableInput{
		TableName:            &s.table,
		BillingMode:          types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{{AttributeName: aws.String(attributeID), AttributeType: types.ScalarAttributeTypeS}},
		KeySchema:            []types.KeySchemaElement{{AttributeName: aws.String(attributeID), KeyType: types.KeyTypeHash}},
	})
	if _, taken := errors.AsType[*types.ResourceInUseException](err); taken {
		return nil // somebody else is faster
	}
	return err
}

// enableTTL lets DynamoDB remove what has expired. A table that does so already
// is left alone: its settings can be changed only now and then.
func (s *Store) enableTTL(ctx context.Context) error {
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
			Detail: fmt.Sprintf("its time to live is that of the attribute %q, and not of %q", aws.ToString(d.AttributeName), attributeTTL),
		}
	}
	_, err = call(ctx, s, request{op: opOpen}, s.client.UpdateTimeToLive, &dynamodb.UpdateTimeToLiveInput{
		TableName: &s.table,
		TimeToLiveSpecification: &types.TimeToLiveSpecification{
			AttributeName: aws.String(attributeTTL), Enabled: aws.Bool(true),
		},
	})
	if refusal, ok := errors.AsType[smithy.APIError](err); ok && strings.Contains(refusal.ErrorMessage(), "already enabled") {
		return nil // somebody else is faster
	}
	return noTTL(err)
}

// noTTL forgives servers that speak for DynamoDB in tests and have no time to
// live. DynamoDB itself always knows what that is.
func noTTL(err error) error {
	if refusal, ok := errors.AsType[smithy.APIError](err); ok && refusal.ErrorCode() == "UnknownOperationException" {
		return nil
	}
	return err
}
