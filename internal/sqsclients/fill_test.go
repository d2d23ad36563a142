package sqsclients_test

import (
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// fill sends messages with the numbers from to to-1 as bodies, in batches. With groups,
// message n is in group n modulo groups, and each group is sent in order; the workers must
// be able to share the groups evenly.
func (d *daemon) fill(queue *string, from, to, groups int) {
	d.t.Helper()
	c := d.client(3)
	errs := make([]error, loadWorkers)
	var wg sync.WaitGroup
	for worker := range loadWorkers {
		wg.Go(func() {
			for n := from + worker; n < to && errs[worker] == nil; n += 10 * loadWorkers {
				var entries []types.SendMessageBatchRequestEntry
				for n := n; n < to && len(entries) < 10; n += loadWorkers {
					entry := types.SendMessageBatchRequestEntry{Id: aws.String(strconv.Itoa(n)), MessageBody: aws.String(strconv.Itoa(n))}
					if groups > 0 {
						entry.MessageGroupId, entry.MessageDeduplicationId = aws.String(strconv.Itoa(n%groups)), entry.Id
					}
					entries = append(entries, entry)
				}
				out, err := c.SendMessageBatch(d.t.Context(), &sqs.SendMessageBatchInput{QueueUrl: queue, Entries: entries})
				if err == nil && len(out.Failed) > 0 {
					err = fmt.Errorf("%s: %s", *out.Failed[0].Code, aws.ToString(out.Failed[0].Message))
				}
				errs[worker] = err
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		d.t.Fatal(err)
	}
}
