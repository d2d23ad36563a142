package dynamoreply_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/mailboxmq/mailbox/internal/testing/dynamotest"
	"github.com/mailboxmq/mailbox/internal/testing/replytest"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
	"github.com/mailboxmq/mailbox/membox"
)

// TestEveryCallerOfDynamoGetsItsOwnAnswerAnErrorOrItsTimeout runs the reply load
// over a DynamoDB that often throttles, and whose responses get lost.
func TestEveryCallerOfDynamoGetsItsOwnAnswerAnErrorOrItsTimeout(t *testing.T) {
	volume.Alone(t)
	t.Parallel()
	server := dynamotest.Shared(t)
	synctest.Test(t, func(t *testing.T) {
		d := newEnv(t, server, nil)
		d.add(fault{code: "ProvisionedThroughputExceededException", every: 11})
		d.add(fault{late: true, every: 17})
		d.add(fault{every: 23})
		backend := membox.New(nil)
		defer backend.Close()
		load := replytest.Load{
			Requests: backend, Replies: d.store, Slots: d.slots,
			Callers: 1000, Workers: 8,
			Work: 50 * time.Millisecond, Visibility: 5 * time.Second, Patience: 2 * time.Minute,
		}
		t.Logf("%d callers: %v; %d requests to DynamoDB", load.Callers, load.Run(t), d.total())
	})
}

// slots counts the items in the table.
func (d *env) slots(ctx context.Context) (n int, err error) {
	d.clear()
	scan := &dynamodb.ScanInput{TableName: &d.table, Select: types.SelectCount, ConsistentRead: aws.Bool(true)}
	for {
		page, err := d.client(d.server).Scan(ctx, scan)
		if err != nil {
			return n, err
		}
		n += int(page.Count)
		if scan.ExclusiveStartKey = page.LastEvaluatedKey; len(scan.ExclusiveStartKey) == 0 {
			return n, nil
		}
	}
}
