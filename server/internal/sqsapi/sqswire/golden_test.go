package sqswire_test

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/mailboxmq/mailbox/server/internal/sqsapi/sqswire"
)

var update = flag.Bool("update", false, "rewrite the answers in testdata")

// The lines before the answers in a transcript.
const (
	answerMark     = "--- answer ---\n"
	jsonAnswerMark = "--- answer to Accept: application/json ---\n"
)

// A transcript is a file in testdata: a request, and the answer to it.
type transcript struct {
	path    string
	request string
	answers string
}

func readTranscript(t testing.TB, name string) *transcript {
	t.Helper()
	path := filepath.Join("testdata", name)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	request, answers, _ := strings.Cut(string(text), answerMark)
	return &transcript{path: path, request: strings.TrimSuffix(request, "\n"), answers: answers}
}

// newRequest reads the request: a line with method and path, headers, an empty line
// and the body.
func (s *transcript) newRequest(t *testing.T) *http.Request {
	t.Helper()
	head, body, _ := strings.Cut(s.request, "\n\n")
	first, headers, _ := strings.Cut(head, "\n")
	method, target, _ := strings.Cut(first, " ")
	r := httptest.NewRequestWithContext(t.Context(), method, target, strings.NewReader(body))
	for line := range strings.SplitSeq(headers, "\n") {
		if name, value, ok := strings.Cut(line, ": "); ok {
			r.Header.Set(name, value)
		}
	}
	return r
}

// check compares answers with those of the file, or writes them there.
func (s *transcript) check(t *testing.T, answers string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(s.path, []byte(s.request+"\n"+answerMark+answers), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if answers != s.answers {
		t.Errorf("%s:\n%s\nwant:\n%s", s.path, answers, s.answers)
	}
}

// written returns an answer as text.
func written(t *testing.T, write func(w http.ResponseWriter) error) string {
	t.Helper()
	w := httptest.NewRecorder()
	if err := write(w); err != nil {
		t.Fatal(err)
	}
	if length := w.Header().Get("Content-Length"); length != fmt.Sprint(w.Body.Len()) {
		t.Errorf("the answer has %d bytes and says that it has %s", w.Body.Len(), length)
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "%d\n", w.Code)
	for _, name := range slices.Sorted(maps.Keys(w.Header())) {
		fmt.Fprintf(&b, "%s: %s\n", name, w.Header().Get(name))
	}
	fmt.Fprintf(&b, "\n%s\n", w.Body)
	return b.String()
}

func TestTranscriptsOfAllActionsInJSON(t *testing.T) {
	for _, c := range cases() {
		s := readTranscript(t, string(c.action)+".json.txt")
		call := decoded(t, c, s.newRequest(t), sqswire.JSON)
		s.check(t, written(t, func(w http.ResponseWriter) error { return call.Answer(w, c.output) }))
	}
}

func TestTranscriptsOfAllActionsInQuery(t *testing.T) {
	for _, c := range cases() {
		s := readTranscript(t, string(c.action)+".query.txt")
		call := decoded(t, c, s.newRequest(t), sqswire.Query)
		answers := written(t, func(w http.ResponseWriter) error { return call.Answer(w, c.output) })
		r := s.newRequest(t)
		r.Header.Set("Accept", "application/json")
		call = decoded(t, c, r, sqswire.QueryJSON)
		answers += jsonAnswerMark + written(t, func(w http.ResponseWriter) error { return call.Answer(w, c.output) })
		s.check(t, answers)
	}
}

// decoded decodes a request and checks the result.
func decoded(t *testing.T, c wireCase, r *http.Request, protocol sqswire.Protocol) *sqswire.Call {
	t.Helper()
	call, err := sqswire.Decode(r, sqswire.RequestLimit)
	if err != nil {
		t.Fatalf("%s: %v", c.action, err)
	}
	if call.Action != c.action || call.Protocol != protocol {
		t.Errorf("%s in protocol %d, want %s in %d", call.Action, call.Protocol, c.action, protocol)
	}
	if !reflect.DeepEqual(call.Input, c.input) {
		t.Errorf("%s: the input is\n%#v\nwant\n%#v", c.action, call.Input, c.input)
	}
	call.RequestID = requestID
	return call
}

// Empty results are omitted; SDKs distinguish nil from empty.
func TestEmptyFieldsAreLeftOut(t *testing.T) {
	for _, c := range []struct {
		action    sqswire.Action
		output    sqswire.Output
		json, xml string
		tree      string
	}{
		{sqswire.ReceiveMessage, &sqswire.ReceiveMessageOutput{}, `{}`, ``, `{"messages":null}`},
		{sqswire.ListQueues, &sqswire.ListQueuesOutput{QueueURLs: []string{}}, `{}`, ``, `{"queueUrls":null,"NextToken":null}`},
		{sqswire.GetQueueAttributes, &sqswire.GetQueueAttributesOutput{Attributes: map[string]string{}}, `{}`, ``, `{"Attributes":null}`},
		{
			sqswire.DeleteMessageBatch,
			&sqswire.DeleteMessageBatchOutput{Successful: []sqswire.DeleteMessageBatchResultEntry{{ID: "a"}}},
			`{"Successful":[{"Id":"a"}]}`,
			`<DeleteMessageBatchResultEntry><Id>a</Id></DeleteMessageBatchResultEntry>`,
			`{"Successful":[{"Id":"a"}],"Failed":null}`,
		},
		{
			sqswire.ReceiveMessage, &sqswire.ReceiveMessageOutput{Messages: []sqswire.Message{{MessageID: "1"}}},
			`{"Messages":[{"MessageId":"1","Body":""}]}`,
			`<Message><MessageId>1</MessageId><Body></Body></Message>`,
			`{"messages":[{"MessageId":"1","ReceiptHandle":null,"MD5OfBody":null,"Body":"","Attributes":null,"MD5OfMessageAttributes":null,"MessageAttributes":null}]}`,
		},
	} {
		action := string(c.action)
		for protocol, want := range map[sqswire.Protocol]string{
			sqswire.JSON:      c.json,
			sqswire.Query:     resultElement(action, c.xml),
			sqswire.QueryJSON: `"` + action + `Result":` + c.tree + `,"ResponseMetadata"`,
		} {
			call := &sqswire.Call{Action: c.action, Protocol: protocol}
			answer := written(t, func(w http.ResponseWriter) error { return call.Answer(w, c.output) })
			if !strings.Contains(answer, want) {
				t.Errorf("%s in protocol %d: want %s in\n%s", action, protocol, want, answer)
			}
		}
	}
}

func resultElement(action, inside string) string {
	if inside == "" {
		return "<" + action + "Result/>"
	}
	return "<" + action + "Result>" + inside + "</" + action + "Result>"
}

// Messages of other surfaces may contain text that SQS clients cannot send.
func TestInvalidCharactersAreReplacedInAnswers(t *testing.T) {
	const text = "\x00\x1f\x7f\xff\uFFFE\v"
	for protocol, want := range map[sqswire.Protocol]string{
		sqswire.JSON:      "\"Body\":\"\\u0000\\u001f\x7f\uFFFD\uFFFE\\u000b\"",
		sqswire.QueryJSON: "\"Body\":\"\\u0000\\u001f\x7f\uFFFD\uFFFE\\u000b\"",
		sqswire.Query:     "<Body>\uFFFD\uFFFD\x7f\uFFFD\uFFFD\uFFFD</Body>",
	} {
		call := &sqswire.Call{Action: sqswire.ReceiveMessage, Protocol: protocol}
		answer := written(t, func(w http.ResponseWriter) error {
			return call.Answer(w, &sqswire.ReceiveMessageOutput{Messages: []sqswire.Message{{Body: text}}})
		})
		if !strings.Contains(answer, want) {
			t.Errorf("protocol %d: want %q in %q", protocol, want, answer)
		}
	}
}
