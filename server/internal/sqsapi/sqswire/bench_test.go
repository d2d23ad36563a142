package sqswire_test

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/mailboxmq/mailbox/server/internal/sqsapi/sqswire"
)

// payload is a message body of typical size.
var payload = `{"order":1234567,"customer":"` + strings.Repeat("x", 450) + `","note":"a \"quoted\" word"}`

// nowhere is a ResponseWriter that discards everything.
type nowhere struct{ header http.Header }

func (n nowhere) Header() http.Header         { return n.header }
func (n nowhere) Write(b []byte) (int, error) { return len(b), nil }
func (n nowhere) WriteHeader(int)             {}

// body is a request body that can be read repeatedly.
type body struct{ strings.Reader }

func (*body) Close() error { return nil }

func benchmarkDecode(b *testing.B, r *http.Request, content string) {
	b.Helper()
	reader := new(body)
	r.Body = reader
	b.SetBytes(int64(len(content)))
	b.ReportAllocs()
	for b.Loop() {
		reader.Reset(content)
		if _, err := sqswire.Decode(r, sqswire.RequestLimit); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecodeSendMessageJSON(b *testing.B) {
	quoted := strings.ReplaceAll(strings.ReplaceAll(payload, `\`, `\\`), `"`, `\"`)
	content := `{"QueueUrl":"` + queueURL + `","MessageBody":"` + quoted + `","MessageAttributes":{"tenant":{"DataType":"String","StringValue":"acme"}}}`
	benchmarkDecode(b, jsonRequest(b, sqswire.SendMessage, "/", content), content)
}

func BenchmarkDecodeSendMessageBatchJSON(b *testing.B) {
	var entries []string
	for id := range sqswire.MaxBatchEntries {
		entries = append(entries, `{"Id":"`+strconv.Itoa(id)+`","MessageBody":"`+strings.Repeat("x", 344)+`"}`)
	}
	content := `{"QueueUrl":"` + queueURL + `","Entries":[` + strings.Join(entries, ",") + `]}`
	benchmarkDecode(b, jsonRequest(b, sqswire.SendMessageBatch, "/", content), content)
}

func BenchmarkDecodeSendMessageQuery(b *testing.B) {
	content := "Action=SendMessage&Version=2012-11-05&QueueUrl=http%3A%2F%2Flocalhost%3A9324%2F000000000000%2Forders&MessageBody=" +
		strings.NewReplacer(`{`, "%7B", `}`, "%7D", `"`, "%22", ":", "%3A", ",", "%2C", " ", "+", `\`, "%5C").Replace(payload) +
		"&MessageAttribute.1.Name=tenant&MessageAttribute.1.Value.DataType=String&MessageAttribute.1.Value.StringValue=acme"
	benchmarkDecode(b, formRequest(b, "/", content), content)
}

func BenchmarkDecodeLargeSendMessageJSON(b *testing.B) {
	content := `{"QueueUrl":"` + queueURL + `","MessageBody":"` + strings.Repeat("x", sqswire.MaxMessageBytes) + `"}`
	benchmarkDecode(b, jsonRequest(b, sqswire.SendMessage, "/", content), content)
}

func benchmarkReceive(b *testing.B, protocol sqswire.Protocol) {
	b.Helper()
	var out sqswire.ReceiveMessageOutput
	for range 10 {
		out.Messages = append(out.Messages, sqswire.Message{
			MessageID: "01KGM8Z0W1N8V4K9Q2X7T3R5YB", ReceiptHandle: strings.Repeat("r", 120), Body: payload, MD5OfBody: sqswire.MD5OfBody(payload),
			Attributes: map[string]string{
				"SenderId": "000000000000", "SentTimestamp": "1770000000123", "ApproximateReceiveCount": "1", "ApproximateFirstReceiveTimestamp": "1770000000456",
			},
			MD5OfMessageAttributes: strings.Repeat("a", 32),
			MessageAttributes:      map[string]sqswire.MessageAttributeValue{"tenant": {DataType: "String", StringValue: new("acme")}},
		})
	}
	call := &sqswire.Call{Action: sqswire.ReceiveMessage, Protocol: protocol, RequestID: requestID}
	w := httptest.NewRecorder()
	if err := call.Answer(w, &out); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(w.Body.Len()))
	b.ReportAllocs()
	for b.Loop() {
		if err := call.Answer(nowhere{http.Header{}}, &out); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEncodeReceiveMessageJSON(b *testing.B)  { benchmarkReceive(b, sqswire.JSON) }
func BenchmarkEncodeReceiveMessageQuery(b *testing.B) { benchmarkReceive(b, sqswire.Query) }
