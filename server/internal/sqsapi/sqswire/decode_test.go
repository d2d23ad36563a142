package sqswire_test

import (
	"crypto/sha256"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/mailboxmq/mailbox/server/internal/sqsapi/sqswire"
)

func jsonRequest(t testing.TB, action sqswire.Action, path, body string) *http.Request {
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader(body))
	r.Header.Set("X-Amz-Target", "AmazonSQS."+string(action))
	r.Header.Set("Content-Type", "application/x-amz-json-1.0")
	return r
}

func formRequest(t testing.TB, path, form string) *http.Request {
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader(form))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return r
}

// decodeOne decodes a valid request and returns its input.
func decodeOne[I any](t *testing.T, r *http.Request) *I {
	t.Helper()
	call, err := sqswire.Decode(r, sqswire.RequestLimit)
	if err != nil {
		t.Fatalf("%s: %v", r.URL, err)
	}
	in, ok := call.Input.(any).(*I)
	if !ok {
		t.Fatalf("decoded as %T", call.Input)
	}
	return in
}

func TestJSONIsReadAsAWSReadsIt(t *testing.T) {
	receive := func(members string) string {
		return `{"QueueUrl":"q"` + members + `}`
	}
	for body, want := range map[string]sqswire.ReceiveMessageInput{
		receive(``): {QueueURL: "q"},
		receive(`,"Unknown":{"a":[1,-2.5e+3,true,false,null,"\u0041"],"b":{}},"Other":[]`): {QueueURL: "q"},
		receive(`,"VisibilityTimeout":0`):                                                  {QueueURL: "q", VisibilityTimeout: new(0)},
		receive(`,"VisibilityTimeout":"30"`):                                               {QueueURL: "q", VisibilityTimeout: new(30)},
		receive(`,"VisibilityTimeout":30.0`):                                               {QueueURL: "q", VisibilityTimeout: new(30)},
		receive(`,"VisibilityTimeout":-3e1`):                                               {QueueURL: "q", VisibilityTimeout: new(-30)},
		receive(`,"VisibilityTimeout":null,"AttributeNames":null`):                         {QueueURL: "q"},
		receive(`,"QueueUrl":"r"`):                                                         {QueueURL: "r"},
		receive(`,"AttributeNames":["a"],"AttributeNames":["b"]`):                          {QueueURL: "q", AttributeNames: []string{"b"}},
		receive(`,"visibilityTimeout":5`):                                                  {QueueURL: "q"},
		" \t\r\n" + receive(" , \"AttributeNames\" :\n[ ] "):                               {QueueURL: "q", AttributeNames: []string{}},
		`{"QueueUrl":"\"\\\/\b\f\n\r\t\u00e9\ud83d\ude00"}`:                                {QueueURL: "\"\\/\b\f\n\r\té😀"},
	} {
		in := decodeOne[sqswire.ReceiveMessageInput](t, jsonRequest(t, sqswire.ReceiveMessage, "/", body))
		if !reflect.DeepEqual(*in, want) {
			t.Errorf("%s is %+v, want %+v", body, *in, want)
		}
	}
}

func TestWrongJSONIsRefused(t *testing.T) {
	deep := strings.Repeat("[", 1000) + strings.Repeat("]", 1000)
	for _, body := range []string{
		`[]`, `"x"`, `1`, `{`, `{"QueueUrl"`, `{"QueueUrl":`, `{"QueueUrl":"q"`, `{"QueueUrl":"q"}}`, `{"QueueUrl":"q",}`,
		`{"QueueUrl":"q"} x`, `{QueueUrl:"q"}`, `{"QueueUrl":'q'}`, "{\"QueueUrl\":\"a\nb\"}", `{"QueueUrl":"\x"}`,
		`{"QueueUrl":"\u12"}`, `{"QueueUrl":"\u12G4"}`, `{"QueueUrl":"q","X":tru}`, `{"QueueUrl":"q","X":01}`, `{"QueueUrl":"q","X":1.}`,
		`{"QueueUrl":"q","X":-}`, `{"QueueUrl":"q","X":1e}`, `{"QueueUrl":"q","X":.5}`, `{"QueueUrl":"q","X":+1}`, `{"QueueUrl":"q" "X":1}`,
		`{"QueueUrl":"q","X":` + deep + `}`, "{\"QueueUrl\":\"\xff\"}",
		`{"QueueUrl":"q","AttributeNames":[` + strings.Repeat(`"",`, 4096) + `""]}`,
		`{"QueueUrl":"q"` + strings.Repeat(`,"X":1`, 4096) + `}`,
		`{"QueueUrl":5}`, `{"QueueUrl":true}`, `{"QueueUrl":["q"]}`, `{"QueueUrl":{}}`,
		`{"QueueUrl":"q","VisibilityTimeout":1.5}`, `{"QueueUrl":"q","VisibilityTimeout":"x"}`, `{"QueueUrl":"q","VisibilityTimeout":""}`,
		`{"QueueUrl":"q","VisibilityTimeout":2147483648}`, `{"QueueUrl":"q","VisibilityTimeout":1e300}`, `{"QueueUrl":"q","VisibilityTimeout":true}`,
		`{"QueueUrl":"q","VisibilityTimeout":[1]}`, `{"QueueUrl":"q","AttributeNames":"All"}`, `{"QueueUrl":"q","AttributeNames":[1]}`,
		`{"QueueUrl":"q","AttributeNames":[null]}`, `{"QueueUrl":"q","AttributeNames":{"a":"b"}}`, `{"QueueUrl":"q","AttributeNames":["a" "b"]}`,
	} {
		_, err := sqswire.Decode(jsonRequest(t, sqswire.ReceiveMessage, "/", body), sqswire.RequestLimit)
		if !errors.Is(err, sqswire.Serialization) {
			t.Errorf("%.80s: %v", body, err)
		}
	}
	for _, body := range []string{
		`{"QueueUrl":"q","MessageBody":"b","MessageAttributes":[]}`, `{"QueueUrl":"q","MessageBody":"b","MessageAttributes":{"a":"b"}}`,
		`{"QueueUrl":"q","MessageBody":"b","MessageAttributes":{"a":{"DataType":"Binary","BinaryValue":"*"}}}`,
		`{"QueueUrl":"q","MessageBody":"b","MessageAttributes":{"a":{"DataType":"Binary","BinaryValue":5}}}`,
	} {
		_, err := sqswire.Decode(jsonRequest(t, sqswire.SendMessage, "/", body), sqswire.RequestLimit)
		if !errors.Is(err, sqswire.Serialization) {
			t.Errorf("%s: %v", body, err)
		}
	}
	_, err := sqswire.Decode(jsonRequest(t, sqswire.SetQueueAttributes, "/", `{"QueueUrl":"q","Attributes":{"VisibilityTimeout":30}}`), sqswire.RequestLimit)
	if !errors.Is(err, sqswire.Serialization) {
		t.Errorf("a number as an attribute: %v", err)
	}
}

func TestHalfACharacterIsRefused(t *testing.T) {
	for _, body := range []string{`\ud83d`, `\ude00`, `\ud83dx`, `\ud83d\u0041`, `\ud83d \ude00`, `\ud83d\n`} {
		_, err := sqswire.Decode(jsonRequest(t, sqswire.SendMessage, "/", `{"QueueUrl":"q","MessageBody":"`+body+`"}`), sqswire.RequestLimit)
		if !errors.Is(err, sqswire.InvalidMessageContents) {
			t.Errorf("%s: %v", body, err)
		}
	}
}

func TestUnknownActionsAreRefused(t *testing.T) {
	target := func(target string) *http.Request {
		r := jsonRequest(t, "", "/", "{}")
		r.Header.Set("X-Amz-Target", target)
		return r
	}
	for name, r := range map[string]*http.Request{
		"no such action":      jsonRequest(t, "Explode", "/", "{}"),
		"another service":     target("AmazonSNS.Publish"),
		"an empty target":     target(""),
		"lower case":          jsonRequest(t, "sendMessage", "/", "{}"),
		"no action in a form": formRequest(t, "/", "QueueUrl=q"),
		"another in a form":   formRequest(t, "/", "Action=Explode"),
	} {
		call, err := sqswire.Decode(r, sqswire.RequestLimit)
		if !errors.Is(err, sqswire.UnknownOperation) || call == nil || call.RequestID == "" {
			t.Errorf("%s: %v, %v", name, call, err)
		}
	}
}

func TestGETOfQueueURLIsNotFound(t *testing.T) {
	for accept, want := range map[string]string{"": "<UnknownOperationException/>\n", "application/json": "UnknownOperationException"} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/000000000000/orders", nil)
		r.Header.Set("Accept", accept)
		call, err := sqswire.Decode(r, sqswire.RequestLimit)
		w := httptest.NewRecorder()
		if err := call.Fail(w, err); err != nil {
			t.Fatal(err)
		}
		if w.Code != http.StatusNotFound || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%q: %d %s", accept, w.Code, w.Body)
		}
	}
}

func TestQueueURLMayStandInThePath(t *testing.T) {
	for _, c := range []struct{ name, path, form, json, want string }{
		{"path", "/000000000000/orders", "Action=PurgeQueue", "{}", "/000000000000/orders"},
		{"both", "/000000000000/orders", "Action=PurgeQueue&QueueUrl=other", `{"QueueUrl":"other"}`, "other"},
		{"neither", "/", "Action=PurgeQueue&QueueUrl=other", `{"QueueUrl":"other"}`, "other"},
		{"an empty body", "/000000000000/orders", "Action=PurgeQueue", "", "/000000000000/orders"},
	} {
		if in := decodeOne[sqswire.PurgeQueueInput](t, formRequest(t, c.path, c.form)); in.QueueURL != c.want {
			t.Errorf("Query, %s: %q, want %q", c.name, in.QueueURL, c.want)
		}
		if in := decodeOne[sqswire.PurgeQueueInput](t, jsonRequest(t, sqswire.PurgeQueue, c.path, c.json)); in.QueueURL != c.want {
			t.Errorf("JSON, %s: %q, want %q", c.name, in.QueueURL, c.want)
		}
	}
}

func TestMissingParametersAreRefused(t *testing.T) {
	missing := "The request must contain the parameter "
	for _, c := range []struct {
		action  sqswire.Action
		body    string
		want    sqswire.Code
		message string
	}{
		{sqswire.SendMessage, `{"QueueUrl":"q"}`, sqswire.MissingParameter, missing + "MessageBody."},
		{sqswire.SendMessage, `{"QueueUrl":"q","MessageBody":""}`, sqswire.MissingParameter, missing + "MessageBody."},
		{sqswire.SendMessage, `{"MessageBody":"b"}`, sqswire.QueueDoesNotExist, "The specified queue does not exist."},
		{sqswire.DeleteMessage, `{"QueueUrl":"q"}`, sqswire.MissingParameter, missing + "ReceiptHandle."},
		{sqswire.ChangeMessageVisibility, `{"QueueUrl":"q","ReceiptHandle":"r"}`, sqswire.MissingParameter, missing + "VisibilityTimeout."},
		{sqswire.SendMessageBatch, `{"QueueUrl":"q","Entries":[{"Id":"a","MessageBody":"b"},{"Id":"b"}]}`, sqswire.MissingParameter, missing + "SendMessageBatchRequestEntry.2.MessageBody."},
		{sqswire.DeleteMessageBatch, `{"QueueUrl":"q","Entries":[{"Id":"a"}]}`, sqswire.MissingParameter, missing + "DeleteMessageBatchRequestEntry.1.ReceiptHandle."},
		{sqswire.GetQueueURL, `{}`, sqswire.InvalidParameterValue, "Value for parameter QueueName is invalid. Reason: Must specify a queue name."},
		{sqswire.CreateQueue, `{}`, sqswire.InvalidParameterValue, "Value for parameter QueueName is invalid. Reason: Must specify a queue name."},
		{sqswire.TagQueue, `{"QueueUrl":"q"}`, sqswire.MissingParameter, missing + "Tags."},
		{sqswire.AddPermission, `{"QueueUrl":"q","Actions":["*"]}`, sqswire.MissingParameter, missing + "Label."},
		{sqswire.StartMessageMoveTask, `{}`, sqswire.MissingParameter, missing + "SourceArn."},
		{sqswire.CancelMessageMoveTask, ``, sqswire.MissingParameter, missing + "TaskHandle."},
	} {
		call, err := sqswire.Decode(jsonRequest(t, c.action, "/", c.body), sqswire.RequestLimit)
		failure, ok := errors.AsType[*sqswire.Error](err)
		if !ok || failure.Code != c.want || failure.Message != c.message {
			t.Errorf("%s %s: %v, want %s: %s", c.action, c.body, err, c.want, c.message)
		}
		if call.Input != nil {
			t.Errorf("%s %s: refused, and there is an input", c.action, c.body)
		}
	}
}

func TestQueryListsAreReadInEverySpelling(t *testing.T) {
	for form, want := range map[string][]string{
		"AttributeName.1=a&AttributeName.2=b":               {"a", "b"},
		"AttributeName.2=b&AttributeName.10=c":              {"b", "c"},
		"AttributeName.7=a&AttributeName.99999999999=b":     {"a", "b"},
		"AttributeName=a":                                   {"a"},
		"AttributeName.member.1=a&AttributeName.member.3=b": {"a", "b"},
		"AttributeNames.1=a&AttributeNames.2=b":             {"a", "b"},
		"AttributeNames.member.1=a":                         {"a"},
		"AttributeNameX.1=a&AttributeNam.1=b":               nil,
		"AttributeName.0=z&AttributeName.1=a":               {"z", "a"},
	} {
		in := decodeOne[sqswire.GetQueueAttributesInput](t, formRequest(t, "/1/q", "Action=GetQueueAttributes&"+form))
		if !reflect.DeepEqual(in.AttributeNames, want) {
			t.Errorf("%s is %q, want %q", form, in.AttributeNames, want)
		}
	}
}

// Old clients send the name of an empty list with an empty value.
func TestQueryListsWithoutElementsAreEmpty(t *testing.T) {
	in := decodeOne[sqswire.SendMessageBatchInput](t, formRequest(t, "/", "Action=SendMessageBatch&QueueUrl=q&SendMessageBatchRequestEntry="))
	if err := in.CheckEntries(); len(in.Entries) != 0 || !errors.Is(err, sqswire.EmptyBatchRequest) {
		t.Errorf("%d entries, %v", len(in.Entries), err)
	}
	names := decodeOne[sqswire.ReceiveMessageInput](t, formRequest(t, "/", "Action=ReceiveMessage&QueueUrl=q&AttributeName="))
	if len(names.AttributeNames) != 0 {
		t.Errorf("names are %q", names.AttributeNames)
	}
}

func TestQueryMapsAreReadInEverySpelling(t *testing.T) {
	want := map[string]string{"VisibilityTimeout": "5", "Policy": ""}
	for _, form := range []string{
		"Attribute.1.Name=VisibilityTimeout&Attribute.1.Value=5&Attribute.2.Name=Policy&Attribute.2.Value=",
		"Attribute.2.Value=5&Attribute.2.Name=VisibilityTimeout&Attribute.11.Name=Policy",
		"Attribute.entry.1.key=VisibilityTimeout&Attribute.entry.1.value=5&Attribute.entry.2.key=Policy",
		"Attributes.1.Name=VisibilityTimeout&Attributes.1.Value=5&Attributes.2.Name=Policy",
		"Attribute.Name=VisibilityTimeout&Attribute.Value=5&Attribute.1.Name=Policy",
	} {
		in := decodeOne[sqswire.SetQueueAttributesInput](t, formRequest(t, "/1/q", "Action=SetQueueAttributes&"+form))
		if !reflect.DeepEqual(in.Attributes, want) {
			t.Errorf("%s is %q, want %q", form, in.Attributes, want)
		}
	}
}

func TestQueryIsReadFromURLAndForm(t *testing.T) {
	r := formRequest(t, "/?Action=SendMessage&QueueUrl=q&DelaySeconds=1", "MessageBody=a+b%2Bc&DelaySeconds=2")
	in := decodeOne[sqswire.SendMessageInput](t, r)
	if in.QueueURL != "q" || in.MessageBody != "a b+c" || *in.DelaySeconds != 2 {
		t.Errorf("%+v", in)
	}
	r = httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/1/q?Action=SendMessage&MessageBody=x&Version=2012-11-05&X-Amz-Signature=s", nil)
	if in := decodeOne[sqswire.SendMessageInput](t, r); in.QueueURL != "/1/q" || in.MessageBody != "x" {
		t.Errorf("%+v", in)
	}
}

func TestWrongFormsAreRefused(t *testing.T) {
	for form, want := range map[string]sqswire.Code{
		"VisibilityTimeout=x":          sqswire.InvalidParameterValue,
		"VisibilityTimeout=":           sqswire.InvalidParameterValue,
		"VisibilityTimeout=2147483648": sqswire.InvalidParameterValue,
		"X=%zz":                        sqswire.MalformedInput,
		"%zz=1":                        sqswire.MalformedInput,
		"X=%ff":                        sqswire.MalformedInput,
		strings.Repeat("&X=1", 5000):   sqswire.MalformedInput,
	} {
		_, err := sqswire.Decode(formRequest(t, "/1/q", "Action=ReceiveMessage&"+form), sqswire.RequestLimit)
		if !errors.Is(err, want) {
			t.Errorf("%.40s: %v, want %s", form, err, want)
		}
	}
	for form, want := range map[string]sqswire.Code{
		"MessageAttribute.1.Value.StringValue=x":                           sqswire.MissingParameter,
		"MessageAttribute.1.Name=a&MessageAttribute.1.Value.BinaryValue=*": sqswire.InvalidParameterValue,
	} {
		_, err := sqswire.Decode(formRequest(t, "/1/q", "Action=SendMessage&MessageBody=b&"+form), sqswire.RequestLimit)
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, want %s", form, err, want)
		}
	}
}

func TestAcceptHeaderDecidesFormOfAnswers(t *testing.T) {
	for accept, want := range map[string]sqswire.Protocol{
		"":                                  sqswire.Query,
		"*/*":                               sqswire.Query,
		"application/json":                  sqswire.QueryJSON,
		"Application/JSON; q=1":             sqswire.QueryJSON,
		"application/json, text/plain, */*": sqswire.QueryJSON,
		"text/html,application/xhtml+xml,application/xml;q=0.9,application/json": sqswire.Query,
	} {
		r := formRequest(t, "/", "Action=ListQueues")
		r.Header.Set("Accept", accept)
		call, err := sqswire.Decode(r, sqswire.RequestLimit)
		if err != nil || call.Protocol != want {
			t.Errorf("%q: protocol %d, %v", accept, call.Protocol, err)
		}
	}
}

func TestLargestMessageFitsRequestLimit(t *testing.T) {
	escaped := strings.Repeat(`\u0061`, sqswire.MaxMessageBytes)
	in := decodeOne[sqswire.SendMessageInput](t, jsonRequest(t, sqswire.SendMessage, "/", `{"QueueUrl":"q","MessageBody":"`+escaped+`"}`))
	if len(in.MessageBody) != sqswire.MaxMessageBytes {
		t.Errorf("%d bytes arrived", len(in.MessageBody))
	}
	in = decodeOne[sqswire.SendMessageInput](t, formRequest(t, "/1/q", "Action=SendMessage&MessageBody="+strings.Repeat("%61", sqswire.MaxMessageBytes)))
	if len(in.MessageBody) != sqswire.MaxMessageBytes {
		t.Errorf("%d bytes arrived", len(in.MessageBody))
	}
	body := `{"QueueUrl":"q"}`
	for limit, want := range map[int]error{len(body): nil, len(body) - 1: sqswire.RequestTooLarge} {
		for _, announced := range []int64{int64(len(body)), -1} {
			r := jsonRequest(t, sqswire.PurgeQueue, "/", body)
			r.ContentLength = announced
			if _, err := sqswire.Decode(r, int64(limit)); !errors.Is(err, want) {
				t.Errorf("limit %d, announced %d: %v", limit, announced, err)
			}
		}
	}
}

// A body that is announced as too large is refused before it is read.
func TestTooLargeRequestsAreNotRead(t *testing.T) {
	r := jsonRequest(t, sqswire.PurgeQueue, "/", "")
	r.Body = io.NopCloser(iotest.ErrReader(errors.New("was read")))
	r.ContentLength = sqswire.RequestLimit + 1
	if _, err := sqswire.Read(r, sqswire.RequestLimit); !errors.Is(err, sqswire.RequestTooLarge) {
		t.Error(err)
	}
	r.ContentLength = 10
	if _, err := sqswire.Read(r, sqswire.RequestLimit); err == nil || errors.Is(err, sqswire.RequestTooLarge) {
		t.Errorf("a request that breaks off: %v", err)
	}
}

func TestBodySHA256IsHashOfBody(t *testing.T) {
	call, err := sqswire.Read(jsonRequest(t, sqswire.PurgeQueue, "/", "{}"), 10)
	if err != nil || call.BodySHA256() != sha256.Sum256([]byte("{}")) {
		t.Errorf("%x, %v", call.BodySHA256(), err)
	}
}

func TestEntriesThatAreNullAreEmpty(t *testing.T) {
	in := decodeOne[sqswire.DeleteMessageBatchInput](t, jsonRequest(t, sqswire.DeleteMessageBatch, "/1/q", `{"Entries":[]}`))
	if in.Entries == nil || len(in.Entries) != 0 {
		t.Errorf("%+v", in)
	}
	_, err := sqswire.Decode(jsonRequest(t, sqswire.DeleteMessageBatch, "/1/q", `{"Entries":[null]}`), sqswire.RequestLimit)
	if !errors.Is(err, sqswire.MissingParameter) {
		t.Error(err)
	}
}

func TestReadKnowsTheActionBeforeTheInput(t *testing.T) {
	for _, r := range []*http.Request{
		jsonRequest(t, sqswire.PurgeQueue, "/", "not JSON"),
		formRequest(t, "/", url.Values{"Action": {"PurgeQueue"}, "QueueUrl": {"q"}}.Encode()),
	} {
		call, err := sqswire.Read(r, sqswire.RequestLimit)
		if err != nil || call.Action != sqswire.PurgeQueue || call.Input != nil {
			t.Errorf("%+v, %v", call, err)
		}
	}
}

func TestRequestIDsAreUUIDs(t *testing.T) {
	seen := make(map[string]bool)
	for range 100 {
		call, _ := sqswire.Read(jsonRequest(t, sqswire.PurgeQueue, "/", ""), 10)
		id := call.RequestID
		if len(id) != 36 || id[14] != '4' || !strings.ContainsRune("89ab", rune(id[19])) || strings.Count(id, "-") != 4 || seen[id] {
			t.Fatalf("the id %q", id)
		}
		seen[id] = true
	}
}
