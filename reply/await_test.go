package reply_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/replyslot"
	"github.com/mailboxmq/mailbox/reply"
)

func TestRPL7EachClientMayOwnReplyMailbox(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newEnv(t)
		ctx, stop := context.WithCancel(t.Context())
		var workers, clients sync.WaitGroup
		for range 4 {
			workers.Go(func() { o.work(ctx, reply.Handle(echo, nil)) })
		}
		for i := range 20 {
			clients.Go(func() {
				name := fmt.Sprint("client-", i)
				replies := o.replies(t, name)
				for j := range 5 {
					question := fmt.Sprint("tea ", i, "/", j)
					sent, err := o.requests.Send(t.Context(), question, mailbox.WithReplyTo(name))
					expectError(t, err, nil)
					answer, err := reply.Await(t.Context(), replies, sent.ID)
					expectError(t, err, nil)
					expectEqual(t, "answer", answer, question+"!")
				}
				stats, err := replies.Stats(t.Context())
				expectError(t, err, nil)
				expectEqual(t, "replies left", stats, mailbox.Stats{})
			})
		}
		clients.Wait()
		stop()
		workers.Wait()
	})
}

func TestRPL7ClientsCanShareAReplyMailbox(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newEnv(t)
		ctx, stop := context.WithCancel(t.Context())
		var workers, clients sync.WaitGroup
		for range 4 {
			workers.Go(func() { o.work(ctx, reply.Handle(echo, nil)) })
		}
		replies := o.replies(t, "replies")
		for i := range 20 {
			clients.Go(func() {
				for j := range 5 {
					question, id := fmt.Sprint("tea ", i, "/", j), fmt.Sprint("request ", i, "/", j)
					_, err := o.requests.Send(t.Context(), question, mailbox.WithReplyTo("replies"), mailbox.WithCorrelationID(id))
					expectError(t, err, nil)
					answer, err := reply.Await(t.Context(), replies, id)
					expectError(t, err, nil)
					expectEqual(t, "answer", answer, question+"!")
				}
			})
		}
		clients.Wait()
		stop()
		workers.Wait()
		stats, err := replies.Stats(t.Context())
		expectError(t, err, nil)
		expectEqual(t, "replies left", stats, mailbox.Stats{})
	})
}

// TestRPL7TwoMailboxesMakeALoop is the loop of two mailboxes, without any reply
// address: requests carry an id, and so do responses.
func TestRPL7TwoMailboxesMakeALoop(t *testing.T) {
	type request struct{ ID, Question string }
	type response struct{ ID, Answer, Error string }
	o := newEnv(t)
	requests := must(mailbox.Open[request](t.Context(), o.backend, "questions", nil))(t)
	responses := must(mailbox.Open[response](t.Context(), o.backend, "responses", nil))(t)
	for i := range 3 {
		must(requests.Send(t.Context(), request{ID: strconv.Itoa(i), Question: "tea?"}))(t)
	}
	for _, message := range must(requests.Receive(t.Context(), mailbox.WithMax(10)))(t) {
		must(responses.Send(t.Context(), response{ID: message.Body.ID, Answer: "yes"}))(t)
		expectError(t, message.Ack(t.Context()), nil)
	}
	// A client takes its own reply and puts the others back.
	for looks := 1; ; looks++ {
		message := must(responses.Receive(t.Context()))(t)[0]
		if message.Body.ID == "2" {
			expectError(t, message.Ack(t.Context()), nil)
			expectEqual(t, "looks", looks, 3)
			break
		}
		expectError(t, message.Nack(t.Context(), 0, nil), nil)
	}
	stats, err := responses.Stats(t.Context())
	expectError(t, err, nil)
	expectEqual(t, "responses left", stats, mailbox.Stats{Ready: 2})
}

// TestRPL7ReplyThatOthersReadDiesAtDeliveryLimit: one client waits for its reply beside that of another, which
// is lost with the default delivery limit and not without a limit.
func TestRPL7ReplyThatOthersReadDiesAtDeliveryLimit(t *testing.T) {
	for limit, want := range map[int]mailbox.Stats{driver.DefaultMaxDeliveries: {Dead: 1}, driver.Off: {Ready: 1}} {
		synctest.Test(t, func(t *testing.T) {
			o := newEnv(t)
			expectError(t, o.backend.ConfigureQueue(t.Context(), "replies", driver.Config{MaxDeliveries: limit}), nil)
			box := must(mailbox.Open(t.Context(), o.faults, "replies", &mailbox.Options[reply.Result[string]]{Codec: reply.Results[string](nil)}))(t)
			must(box.Send(t.Context(), reply.Result[string]{Value: "for another client"}, mailbox.WithCorrelationID("other")))(t)
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			_, err := reply.Await(ctx, box, "mine")
			expectError(t, err, context.DeadlineExceeded)
			expectEqual(t, "replies", must(box.Stats(t.Context()))(t), want)
			// The last receive finds nothing.
			if looks := o.faults.Calls("receive") - 1; limit != driver.Off {
				expectEqual(t, "receives until it is dead", looks, driver.DefaultMaxDeliveries*(driver.MaxReleases+1))
			}
		})
	}
}

func TestAwaitDoesNotSpinOnOtherReplies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newEnv(t)
		box := must(mailbox.Open(t.Context(), o.faults, "replies", &mailbox.Options[reply.Result[string]]{Codec: reply.Results[string](nil)}))(t)
		for range 40 {
			must(box.Send(t.Context(), reply.Result[string]{Value: "for another client"}, mailbox.WithCorrelationID("other")))(t)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := reply.Await(ctx, box, "mine")
		expectError(t, err, context.DeadlineExceeded)
		if looks := o.faults.Calls("receive"); looks > 300 {
			t.Errorf("looked %d times in a minute", looks)
		}
		stats, err := box.Stats(t.Context())
		expectError(t, err, nil)
		expectEqual(t, "replies", stats, mailbox.Stats{Ready: 40})
	})
}

func TestCollectReturnsEachReplyOnce(t *testing.T) {
	o := newEnv(t)
	replies := o.replies(t, "run-7")
	var ids []string
	for _, body := range []string{"tea", "coffee", "milk"} {
		ids = append(ids, must(o.requests.Send(t.Context(), body, mailbox.WithReplyTo("run-7")))(t).ID)
	}
	handle := reply.Handle(echo, nil)
	for i := range 3 {
		message := o.receive(t)
		if i == 0 { // a worker that answers twice, as after a crash
			expectError(t, mailbox.Reply(t.Context(), message, "tea?"), nil)
		}
		expectError(t, handle(t.Context(), message), nil)
	}
	results, err := reply.Collect(t.Context(), replies, 3)
	expectError(t, err, nil)
	for i, want := range []string{"tea?", "", "milk!"} {
		expectEqual(t, "request", results[i].RequestID, ids[i])
		expectEqual(t, "value", results[i].Value, want)
		expectEqual(t, "index", results[i].Index, -1)
	}
	expectError(t, results[1].Err, errSoldOut)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	results, err = reply.Collect(ctx, replies, 1)
	expectError(t, err, context.Canceled)
	expectEqual(t, "results", len(results), 0)
}

// letters answers with the characters of the request, one by one.
func letters(ctx context.Context, message *mailbox.Message[string], stream *reply.Stream[string]) error {
	for _, letter := range message.Body {
		if letter == '!' {
			return errSoldOut
		}
		if err := stream.Send(ctx, string(letter)); err != nil {
			return err
		}
	}
	return nil
}

func collectParts(t *testing.T, ctx context.Context, replies *mailbox.Mailbox[reply.Result[string]], id string, from int) (text string, last error) { //nolint:revive // the test comes first
	t.Helper()
	for part, err := range reply.Parts(ctx, replies, id, from) {
		if err != nil {
			return text, err
		}
		text += part.Value
	}
	return text, nil
}

func TestStreamArrivesInOrderAndEnds(t *testing.T) {
	o := newEnv(t)
	replies := o.replies(t, "replies")
	handle := reply.HandleStream(letters, nil)
	for _, test := range []struct {
		body, want string
		err        error
	}{{"darjeeling", "darjeeling", nil}, {"", "", nil}, {"te!a", "te", errSoldOut}} {
		id := must(o.requests.Send(t.Context(), test.body, mailbox.WithReplyTo("replies")))(t).ID
		expectError(t, handle(t.Context(), o.receive(t)), nil)
		text, err := collectParts(t, t.Context(), replies, id, 0)
		expectError(t, err, test.err)
		expectEqual(t, "text", text, test.want)
	}
	o.expectRequests(t, mailbox.Stats{})
	stats, err := replies.Stats(t.Context())
	expectError(t, err, nil)
	expectEqual(t, "replies left", stats, mailbox.Stats{})
}

func TestStreamSentTwiceIsReadOnce(t *testing.T) {
	o := newEnv(t)
	replies := o.replies(t, "replies")
	id := must(o.requests.Send(t.Context(), "assam", mailbox.WithReplyTo("replies")))(t).ID
	crashed := o.receive(t)
	stream := reply.NewStream[string](crashed, nil)
	for _, letter := range []string{"a", "s", "s"} { // and then the worker dies
		expectError(t, stream.Send(t.Context(), letter), nil)
	}
	expectError(t, crashed.Release(t.Context()), nil)
	expectError(t, reply.HandleStream(letters, nil)(t.Context(), o.receive(t)), nil)
	text, err := collectParts(t, t.Context(), replies, id, 0)
	expectError(t, err, nil)
	expectEqual(t, "text", text, "assam")
}

func TestStreamIsPutInOrder(t *testing.T) {
	o := newEnv(t)
	replies := o.replies(t, "replies")
	plain := must(mailbox.Open(t.Context(), o.backend, "replies", &mailbox.Options[string]{Codec: mailbox.JSON[string]()}))(t)
	const n = 300 // more than are kept ahead of their turn
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	slices.Reverse(order)
	must(plain.Send(t.Context(), "", mailbox.WithCorrelationID("r"), mailbox.WithAttributes(map[string]string{
		replyslot.AttributeEnd: "true", replyslot.AttributeIndex: strconv.Itoa(n),
	})))(t)
	for _, i := range order {
		must(plain.Send(t.Context(), fmt.Sprint(i), mailbox.WithCorrelationID("r"),
			mailbox.WithAttribute(replyslot.AttributeIndex, strconv.Itoa(i))))(t)
	}
	next := 0
	for part, err := range reply.Parts(t.Context(), replies, "r", 0) {
		expectError(t, err, nil)
		expectEqual(t, "index", part.Index, next)
		expectEqual(t, "value", part.Value, fmt.Sprint(next))
		next++
	}
	expectEqual(t, "parts", next, n)
}

func TestPartsDoNotSpinOnMissingPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newEnv(t)
		const spinning = 5000 // a reader that spins never lets virtual time pass
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		looks := 0
		box := must(mailbox.Open(t.Context(), o.backend, "replies", &mailbox.Options[reply.Result[string]]{
			Codec: reply.Results[string](nil),
			Hooks: mailbox.Hooks{Polled: func(context.Context, mailbox.PolledEvent) {
				if looks++; looks == spinning {
					cancel()
				}
			}},
		}))(t)
		defer box.Close()
		const first, n = 1, 300 // more than are kept ahead of their turn
		for i := first; i <= n; i++ {
			must(box.Send(t.Context(), reply.Result[string]{Value: "late"}, mailbox.WithCorrelationID("r"),
				mailbox.WithAttribute(replyslot.AttributeIndex, strconv.Itoa(i))))(t)
		}
		text, err := collectParts(t, ctx, box, "r", 0)
		expectError(t, err, context.DeadlineExceeded)
		expectEqual(t, "text", text, "")
		if looks > 500 {
			t.Errorf("looked %d times in a minute", looks)
		}
		stats, err := box.Stats(t.Context())
		expectError(t, err, nil)
		expectEqual(t, "parts for the next reader", stats, mailbox.Stats{Ready: n})
	})
}

func TestPartsLeaveRestForNextReader(t *testing.T) {
	o := newEnv(t)
	replies := o.replies(t, "replies")
	id := must(o.requests.Send(t.Context(), "assam", mailbox.WithReplyTo("replies")))(t).ID
	expectError(t, reply.HandleStream(letters, nil)(t.Context(), o.receive(t)), nil)
	last := -1
	for part, err := range reply.Parts(t.Context(), replies, id, 0) {
		expectError(t, err, nil)
		if last = part.Index; last == 1 {
			break
		}
	}
	text, err := collectParts(t, t.Context(), replies, id, last+1)
	expectError(t, err, nil)
	expectEqual(t, "rest", text, "sam")
}

func TestPartsReturnFailureOfAnotherWorker(t *testing.T) {
	o := newEnv(t)
	replies := o.replies(t, "replies")
	id := must(o.requests.Send(t.Context(), "tea", mailbox.WithReplyTo("replies")))(t).ID
	message := o.receive(t)
	expectError(t, reply.NewStream[string](message, nil).Send(t.Context(), "t"), nil)
	expectError(t, mailbox.Reply(t.Context(), message, "unnumbered"), nil)
	expectError(t, mailbox.ReplyError(t.Context(), message, errSoldOut), nil) // no stream has sent it
	text, err := collectParts(t, t.Context(), replies, id, 0)
	expectError(t, err, errSoldOut)
	expectEqual(t, "text", text, "tunnumbered")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = collectParts(t, ctx, replies, id, 0)
	expectError(t, err, context.Canceled)
}

func TestStreamNeedsAMailboxAndEndsOnce(t *testing.T) {
	o := newEnv(t)
	must(o.client(nil).Send(t.Context(), "tea"))(t)
	message := o.receive(t)
	stream := reply.NewStream[string](message, nil)
	expectError(t, stream.Send(t.Context(), "t"), mailbox.ErrUnsupported)
	expectError(t, reply.HandleStream(letters, nil)(t.Context(), message), mailbox.ErrUnsupported)

	must(o.requests.Send(t.Context(), "tea", mailbox.WithReplyTo("replies")))(t)
	ended := reply.NewStream[string](o.receive(t), nil)
	expectError(t, ended.Fail(t.Context(), nil), mailbox.ErrInvalid)
	expectError(t, ended.End(t.Context()), nil)
	expectError(t, ended.End(t.Context()), mailbox.ErrReplyAlreadySent)
	expectError(t, ended.Send(t.Context(), "t"), mailbox.ErrReplyAlreadySent)

	must(o.requests.Send(t.Context(), "tea", mailbox.WithReplyTo("replies")))(t)
	functions := reply.NewStream[func()](o.receive(t), nil)
	expectError(t, functions.Send(t.Context(), nil), mailbox.ErrEncoding)
}

func TestResultsCodecSendsValuesOnly(t *testing.T) {
	codec := reply.Results[string](nil)
	body, err := codec.Encode(reply.Result[string]{Value: "tea"})
	expectError(t, err, nil)
	expectEqual(t, "body", string(body), `"tea"`)
	expectEqual(t, "content type", codec.ContentType(), "application/json")
	result, err := codec.Decode(body)
	expectError(t, err, nil)
	expectEqual(t, "value", result.Value, "tea")
	for _, result := range []reply.Result[string]{{Err: errors.New("no")}, {End: true}} {
		if _, err := codec.Encode(result); err == nil {
			t.Errorf("%+v was encoded", result)
		}
	}
	decoder := codec.(mailbox.MessageDecoder[reply.Result[string]])
	for _, index := range []string{"x", "-1", "99999999999"} {
		_, err := decoder.DecodeMessage(&driver.Message{Body: body, Attributes: map[string]string{replyslot.AttributeIndex: index}})
		if err == nil {
			t.Errorf("index %q was accepted", index)
		}
	}
}
