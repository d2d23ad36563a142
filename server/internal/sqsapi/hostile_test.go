package sqsapi_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/mailboxmq/mailbox/capability"
)

// ask sends an unsigned request of the Query protocol, and returns the status.
func (d *daemon) ask(method string, header http.Header, parameters url.Values) int {
	d.t.Helper()
	request, err := http.NewRequestWithContext(d.t.Context(), method, "http://127.0.0.1:4566/?"+parameters.Encode(), http.NoBody)
	if err != nil {
		d.t.Fatal(err)
	}
	for name := range header {
		request.Header.Set(name, header.Get(name))
	}
	response, err := d.http.Do(request)
	if err != nil {
		d.t.Fatal(err)
	}
	_ = response.Body.Close()
	return response.StatusCode
}

func TestPagesOfOtherSitesCannotUseTheUnsignedHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := serve(t, setup{unsigned: true})
		create := url.Values{"Action": {"CreateQueue"}, "QueueName": {"orders"}}
		for _, header := range []http.Header{
			{"Origin": {"https://evil.example"}},
			{"Origin": {"null"}},
			{"Origin": {"http://127.0.0.1:8080"}},
			{"Sec-Fetch-Site": {"cross-site"}},
			{"Sec-Fetch-Site": {"same-site"}},
		} {
			if status := d.ask(http.MethodGet, header, create); status != http.StatusForbidden {
				t.Errorf("%v: status %d", header, status)
			}
		}
		for _, header := range []http.Header{
			nil,
			{"Sec-Fetch-Site": {"none"}}, // typed by the user
			{"Sec-Fetch-Site": {"same-origin"}, "Origin": {"http://127.0.0.1:4566"}},
		} {
			if status := d.ask(http.MethodGet, header, create); status != http.StatusOK {
				t.Errorf("%v: status %d", header, status)
			}
		}
	})
}

func TestOnlyGETAndPOSTRunActions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := serve(t, setup{unsigned: true})
		queue := d.client("").create("orders")
		send := url.Values{"Action": {"SendMessage"}, "QueueUrl": {"orders"}, "MessageBody": {"x"}}
		for _, method := range []string{http.MethodHead, http.MethodPut, http.MethodDelete, http.MethodOptions, http.MethodPatch} {
			if status := d.ask(method, nil, send); status == http.StatusOK {
				t.Errorf("%s ran the action", method)
			}
		}
		if got := d.client("").receive(queue); len(got) != 0 {
			t.Errorf("%d messages were sent", len(got))
		}
	})
}

func TestPoliciesDiscloseNothingAboutOtherQueues(t *testing.T) {
	synctest.Test(t, with(setup{}, func(t *testing.T, c *client) {
		mine := c.create("mine")
		c.create("there")
		c.createFIFO("there.fifo")
		narrow := c.d.client("", capability.AllOperations(), capability.Queues(capability.Queue("mine"), capability.Queue("new")))
		for _, name := range []string{"there", "there.fifo", "missing"} {
			policy := `{"deadLetterTargetArn":"arn:aws:sqs:x:000000000000:` + name + `","maxReceiveCount":1}`
			refused(t, "set "+name, narrow.set(mine, "RedrivePolicy", policy), "AccessDenied")
			_, err := narrow.CreateQueue(t.Context(), &sqs.CreateQueueInput{
				QueueName: aws.String("new"), Attributes: map[string]string{"RedrivePolicy": policy},
			})
			refused(t, "create "+name, err, "AccessDenied")
		}
	}))
}

func TestBinaryAttributeKeepsItsBytesBesideString(t *testing.T) {
	synctest.Test(t, with(setup{}, func(t *testing.T, c *client) {
		queue := c.create("orders")
		for _, length := range []int{1, 100_000} { // as an attribute, and appended to the body
			out, err := c.SendMessage(t.Context(), &sqs.SendMessageInput{
				QueueUrl: queue, MessageBody: aws.String("b"), MessageAttributes: map[string]types.MessageAttributeValue{
					"long":  {DataType: aws.String("String"), StringValue: aws.String(strings.Repeat("l", length))},
					"bytes": {DataType: aws.String("Binary"), BinaryValue: []byte{0, 1}, StringValue: aws.String("text")},
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			got := c.one(queue)
			if string(got.MessageAttributes["bytes"].BinaryValue) != "\x00\x01" || *got.MD5OfMessageAttributes != *out.MD5OfMessageAttributes {
				t.Errorf("with %d bytes beside it: got %q", length, got.MessageAttributes["bytes"].BinaryValue)
			}
			c.delete(queue, got)
		}
	}))
}
