package cli

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/mailboxmq/mailbox/driver"
)

// A batch of lines stays well within the limit of a frame, also in base64.
const (
	sendBatch      = 256
	sendBatchBytes = 512 << 10
)

// A lineSender sends each line of an input. Batches go one after the other, so
// that the order is kept.
type lineSender struct {
	shell    *shell
	flags    *sendFlags
	name     string
	queue    messageQueue
	template driver.Outgoing
	bar      *progress

	done  int // lines sent or skipped
	batch []driver.Outgoing
	bytes int // of the batch
}

func (l *lineSender) send(ctx context.Context, input io.Reader) error {
	lines := bufio.NewScanner(input)
	lines.Buffer(make([]byte, 64<<10), maxBodyBytes+1)
	for number := 1; lines.Scan(); number++ {
		if number <= l.flags.skip {
			l.done = number
			continue
		}
		message := l.template
		message.Body = bytes.Clone(lines.Bytes())
		if l.flags.key != "" {
			message.DedupKey = fmt.Sprintf("%s:%d", l.flags.key, number)
		}
		if len(l.batch) == sendBatch || len(l.batch) > 0 && l.bytes+len(message.Body) > sendBatchBytes {
			if err := l.flush(ctx); err != nil {
				return err
			}
		}
		l.batch, l.bytes = append(l.batch, message), l.bytes+len(message.Body)+1
	}
	if err := l.flush(ctx); err != nil {
		return err
	}
	switch err := lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return usageError("line %d has more than %d bytes, which no daemon accepts; the lines before it were sent", l.done+1, maxBodyBytes)
	case err != nil:
		return usageError("the lines after line %d cannot be read: %v", l.done, err)
	}
	return nil
}

// flush sends the batch.
func (l *lineSender) flush(ctx context.Context) error {
	if len(l.batch) == 0 {
		return nil
	}
	sent, err := l.queue.Send(ctx, l.batch)
	var good []driver.Sent
	var failed []int
	for i := range l.batch {
		if driver.At(err, i) == nil && i < len(sent) {
			good = append(good, sent[i])
		} else {
			failed = append(failed, l.done+i+1)
		}
	}
	if err != nil {
		err = l.stopped(err, failed, len(l.batch))
	}
	if printed := l.shell.printSent(l.flags, l.name, good); printed != nil {
		return printed
	}
	l.bar.add(int64(l.bytes))
	l.done += len(l.batch)
	l.batch, l.bytes = l.batch[:0], 0
	return err
}

// stopped explains how to continue after an error: after the last line that was sent, or
// with the lines that were not.
func (l *lineSender) stopped(err error, failed []int, batch int) error {
	f := *explain(err)
	last := l.done + batch
	again := fmt.Sprintf("continue with --skip %d", failed[0]-1)
	f.sentence = fmt.Sprintf("sending stopped after line %d: %s", failed[0]-1, f.sentence)
	if len(failed) != last-failed[0]+1 { // some lines after the first failure were sent
		numbers := make([]string, len(failed))
		for i, number := range failed {
			numbers[i] = strconv.Itoa(number)
		}
		f.sentence = fmt.Sprintf("sending stopped at line %d, and of the lines up to there these were not sent: %s: %s", last, strings.Join(numbers, ", "), explain(err).sentence)
		again = fmt.Sprintf("send those lines separately, and continue with --skip %d", last)
	}
	if f.advice != "" {
		again = f.advice + ", and " + again
	}
	f.advice = again
	return &f
}
