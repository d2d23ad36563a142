package sqswire_test

import (
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/mailboxmq/mailbox/server/internal/sqsapi/sqswire"
)

// FuzzJSON checks that an accepted document is JSON and means the same to
// encoding/json, and that any other is refused with a code.
func FuzzJSON(f *testing.F) {
	for _, c := range cases() {
		f.Add(string(c.action), readSeed(f, string(c.action)+".json.txt"))
	}
	f.Add("SendMessage", `{"QueueUrl":"q","MessageBody":"\ud83d\ude00\u0000","X":[{"y":-1.5E+3}]}`)
	f.Fuzz(func(t *testing.T, action, body string) {
		call, err := sqswire.Decode(jsonRequest(t, sqswire.Action(action), "/", body), sqswire.RequestLimit)
		if err != nil {
			mustBeTold(t, call, err)
			return
		}
		if body == "" {
			return
		}
		var document map[string]any
		if err := json.Unmarshal([]byte(body), &document); err != nil && strings.TrimSpace(body) != "" {
			t.Fatalf("%q was read, and is not JSON: %v", body, err)
		}
		if in, ok := call.Input.(*sqswire.SendMessageInput); ok {
			if text, ok := document["MessageBody"].(string); ok && text != in.MessageBody {
				t.Fatalf("%q was read as %q, not %q", body, in.MessageBody, text)
			}
		}
	})
}

// FuzzQuery checks that an accepted form means the same to net/url, and that any other
// is refused with a code.
func FuzzQuery(f *testing.F) {
	for _, c := range cases() {
		f.Add("/", "", readSeed(f, string(c.action)+".query.txt"))
	}
	f.Add("/1/q", "Action=SendMessage", "MessageBody=a+b&MessageAttribute.01.Name=x&MessageAttribute.1.Value.BinaryValue=YQ==")
	f.Add("/1/q", "Action=GetQueueAttributes&AttributeName.member.2=b", "AttributeName..1=x&AttributeName.=y&.=z&=&&")
	f.Fuzz(func(t *testing.T, path, query, form string) {
		r := formRequest(t, "/", form)
		r.URL.Path, r.URL.RawQuery = path, query
		call, err := sqswire.Decode(r, sqswire.RequestLimit)
		if err != nil {
			mustBeTold(t, call, err)
			return
		}
		values, err := url.ParseQuery(form)
		if err != nil {
			return // net/url refuses semicolons
		}
		if in, ok := call.Input.(*sqswire.SendMessageInput); ok && values.Has("MessageBody") && in.MessageBody != values.Get("MessageBody") {
			t.Fatalf("%q was read as %q, not %q", form, in.MessageBody, values.Get("MessageBody"))
		}
	})
}

// mustBeTold checks that an error can be encoded in the protocol of the client.
func mustBeTold(t *testing.T, call *sqswire.Call, err error) {
	t.Helper()
	if failure, ok := errors.AsType[*sqswire.Error](err); !ok || failure.Message == "" {
		t.Fatalf("refused with %v", err)
	}
	w := httptest.NewRecorder()
	if err := call.Fail(w, err); err != nil || w.Code < 400 {
		t.Fatalf("%d, %v", w.Code, err)
	}
	if call.Protocol == sqswire.Query {
		mustBeXML(t, w.Body.String())
	} else if !json.Valid(w.Body.Bytes()) {
		t.Fatalf("the answer is not JSON: %q", w.Body)
	}
}

func mustBeXML(t *testing.T, text string) {
	t.Helper()
	var ignored struct{}
	if err := xml.Unmarshal([]byte(text), &ignored); err != nil {
		t.Fatalf("the answer is not XML: %v: %q", err, text)
	}
}

// readSeed returns the body of a request in testdata, or its query.
func readSeed(f *testing.F, name string) string {
	f.Helper()
	request := readTranscript(f, name).request
	if first, _, _ := strings.Cut(request, "\n"); strings.HasPrefix(first, "GET /?") {
		return strings.TrimPrefix(first, "GET /?")
	}
	_, body, _ := strings.Cut(request, "\n\n")
	return body
}

// direct connects an AWS client to a handler without a network.
type direct struct{ http.Handler }

func (d direct) Do(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	d.ServeHTTP(w, r)
	return w.Result(), nil
}

// FuzzSDK checks that texts survive the way from the AWS client to the server and back.
func FuzzSDK(f *testing.F) {
	f.Add("body", "name", "value", []byte{1, 2}, int32(5))
	f.Add(oddText, "ä.b\x00", "\u2028\"\\", []byte{}, int32(-1))
	server := new(stub)
	client := sqs.New(sqs.Options{
		BaseEndpoint: aws.String("http://localhost"), Region: "us-east-1", Retryer: aws.NopRetryer{}, HTTPClient: direct{server},
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "key", SecretAccessKey: "secret"}, nil
		}),
	})
	f.Fuzz(func(t *testing.T, body, name, value string, blob []byte, seconds int32) {
		if !utf8.ValidString(body) || !utf8.ValidString(name) || !utf8.ValidString(value) || body == "" || seconds == 0 || len(blob) == 0 {
			t.Skip("JSON cannot express it, or the client omits it")
		}
		sent := map[string]types.MessageAttributeValue{
			name: {DataType: &value, StringValue: &value, BinaryValue: blob, StringListValues: []string{value}, BinaryListValues: [][]byte{blob}},
		}
		want := map[string]sqswire.MessageAttributeValue{
			name: {DataType: value, StringValue: &value, BinaryValue: blob, StringListValues: []string{value}, BinaryListValues: [][]byte{blob}},
		}
		server.answer = func(c *sqswire.Call, w http.ResponseWriter) error {
			in, _ := c.Input.(*sqswire.SendMessageInput)
			if in.MessageBody != body || *in.DelaySeconds != int(seconds) || !reflect.DeepEqual(in.MessageAttributes, want) {
				t.Errorf("arrived as %+v", in)
			}
			return c.Answer(w, &sqswire.SendMessageOutput{MessageID: name, MD5OfMessageBody: sqswire.MD5OfBody(body)})
		}
		out, err := client.SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: &body, MessageBody: &body, DelaySeconds: seconds, MessageAttributes: sent})
		if err != nil || server.err != nil || aws.ToString(out.MessageId) != name {
			t.Fatalf("%v, %v, %v", err, server.err, out)
		}
		server.answer = func(c *sqswire.Call, w http.ResponseWriter) error {
			return c.Answer(w, &sqswire.ReceiveMessageOutput{Messages: []sqswire.Message{{
				Body: body, MD5OfBody: sqswire.MD5OfBody(body), Attributes: map[string]string{name: value}, MessageAttributes: want,
			}}})
		}
		got, err := client.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: &body})
		if err != nil {
			t.Fatal(err)
		}
		if m := got.Messages[0]; *m.Body != body || m.Attributes[name] != value || value != "" && !reflect.DeepEqual(m.MessageAttributes, sent) {
			t.Fatalf("arrived as %+v", m)
		}
	})
}

// FuzzXML checks that every text that a message may contain survives XML.
func FuzzXML(f *testing.F) {
	f.Add("a<b>&\"c'\r\n\t]]>")
	f.Add("\x00\xff\uFFFE")
	f.Fuzz(func(t *testing.T, body string) {
		w := httptest.NewRecorder()
		call := &sqswire.Call{Action: sqswire.ReceiveMessage, Protocol: sqswire.Query}
		if err := call.Answer(w, &sqswire.ReceiveMessageOutput{Messages: []sqswire.Message{{Body: body}}}); err != nil {
			t.Fatal(err)
		}
		var answer struct {
			Body string `xml:"ReceiveMessageResult>Message>Body"`
		}
		if err := xml.Unmarshal(w.Body.Bytes(), &answer); err != nil {
			t.Fatalf("%v: %q", err, w.Body)
		}
		if sqswire.CheckBody(body) == nil && answer.Body != body {
			t.Fatalf("%q is read as %q", body, answer.Body)
		}
	})
}
