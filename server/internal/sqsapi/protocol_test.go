package sqsapi_test

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/mailboxmq/mailbox/server/internal/sqsapi/sqswire"
)

// fields are the members of a request, by their names in JSON.
type fields map[string]any

// A protocol sends requests that the SDK would not send.
type protocol struct {
	name    string
	request func(action sqswire.Action, path string, in fields) *http.Request
}

// protocols are the protocols of SQS.
var protocols = []protocol{
	{"JSON", jsonRequest},
	{"Query POST", func(action sqswire.Action, path string, in fields) *http.Request {
		r := newRequest(http.MethodPost, path, queryOf(action, in).Encode())
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		return r
	}},
	{"Query GET", func(action sqswire.Action, path string, in fields) *http.Request {
		return newRequest(http.MethodGet, path+"?"+queryOf(action, in).Encode(), "")
	}},
}

func jsonRequest(action sqswire.Action, path string, in fields) *http.Request {
	body, err := json.Marshal(in)
	if err != nil {
		panic(err)
	}
	r := newRequest(http.MethodPost, path, string(body))
	r.Header.Set("Content-Type", "application/x-amz-json-1.0")
	r.Header.Set("X-Amz-Target", "AmazonSQS."+string(action))
	return r
}

func newRequest(method, path, body string) *http.Request {
	r, err := http.NewRequest(method, "http://127.0.0.1:4566"+path, strings.NewReader(body)) //nolint:noctx // a test waits for it anyway
	if err != nil {
		panic(err)
	}
	return r
}

// elements are the names that lists and maps have in Query.
var elements = map[string]string{
	"Attributes": "Attribute", "Tags": "Tag", "tags": "Tag", "TagKeys": "TagKey", "AWSAccountIds": "AWSAccountId", "Actions": "ActionName",
	"AttributeNames": "AttributeName", "MessageAttributes": "MessageAttribute", "MessageSystemAttributes": "MessageSystemAttribute",
}

// queryOf encodes members as Query clients do.
func queryOf(action sqswire.Action, in fields) url.Values {
	values := url.Values{"Action": {string(action)}, "Version": {"2012-11-05"}}
	addFields(values, "", in, string(action)+"RequestEntry")
	return values
}

func addFields(values url.Values, prefix string, in fields, entry string) {
	for name, value := range in {
		element := elements[name]
		if name == "Entries" {
			element = entry
		}
		switch value := value.(type) {
		case []string:
			if len(value) == 0 {
				values.Set(prefix+name, "") // as botocore writes it
			}
			for i, text := range value {
				values.Set(fmt.Sprintf("%s%s.%d", prefix, element, i+1), text)
			}
		case []fields:
			for i, inner := range value {
				addFields(values, fmt.Sprintf("%s%s.%d.", prefix, element, i+1), inner, "")
			}
		case map[string]string:
			key, i := "Name", 0
			if element == "Tag" {
				key = "Key"
			}
			for each, text := range value {
				i++
				values.Set(fmt.Sprintf("%s%s.%d.%s", prefix, element, i, key), each)
				values.Set(fmt.Sprintf("%s%s.%d.Value", prefix, element, i), text)
			}
		case map[string]fields:
			i := 0
			for each, inner := range value {
				i++
				values.Set(fmt.Sprintf("%s%s.%d.Name", prefix, element, i), each)
				addFields(values, fmt.Sprintf("%s%s.%d.Value.", prefix, element, i), inner, "")
			}
		default:
			values.Set(prefix+name, fmt.Sprint(value))
		}
	}
}

// An answer is a response.
type answer struct {
	status int
	header http.Header
	body   string
}

// exchange sends a request to an unsigned daemon.
func (d *daemon) exchange(r *http.Request) answer {
	d.t.Helper()
	response, err := d.http.Do(r)
	if err != nil {
		d.t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		d.t.Fatal(err)
	}
	return answer{response.StatusCode, response.Header, string(body)}
}

// call is exchange at the root.
func (d *daemon) call(p protocol, action sqswire.Action, in fields) answer {
	d.t.Helper()
	return d.exchange(p.request(action, "/", in))
}

// done is call for a request that must succeed.
func (d *daemon) done(p protocol, action sqswire.Action, in fields) answer {
	d.t.Helper()
	a := d.call(p, action, in)
	if a.status != http.StatusOK {
		d.t.Fatalf("%s by %s: %d %s", action, p.name, a.status, a.body)
	}
	return a
}

// failure returns the code, as spelled in Query, and the message of an answer. It checks
// that all parts of the answer have the same code.
func (a answer) failure(t *testing.T) (code, message string) {
	t.Helper()
	if strings.HasPrefix(a.body, "{") {
		var failure struct {
			Type    string `json:"__type"`
			Message string `json:"message"`
		}
		if err := json.Unmarshal([]byte(a.body), &failure); err != nil {
			t.Fatalf("%v in %s", err, a.body)
		}
		_, shape, _ := strings.Cut(failure.Type, "#")
		code, fault, _ := strings.Cut(a.header.Get("x-amzn-query-error"), ";")
		if sqswire.Code(shape).Query() != code || fault != "Sender" {
			t.Errorf("%s goes with x-amzn-query-error %q", failure.Type, a.header.Get("x-amzn-query-error"))
		}
		return code, failure.Message
	}
	var failure struct {
		Type    string `xml:"Error>Type"`
		Code    string `xml:"Error>Code"`
		Message string `xml:"Error>Message"`
	}
	if err := xml.Unmarshal([]byte(a.body), &failure); err != nil {
		t.Fatalf("%v in %s", err, a.body)
	}
	if failure.Type != "Sender" {
		t.Errorf("the fault is %q", failure.Type)
	}
	return failure.Code, failure.Message
}

// expect checks that a request was refused.
func (a answer) expect(t *testing.T, code sqswire.Code, message string) {
	t.Helper()
	got, said := a.failure(t)
	if a.status != code.Status() || got != code.Query() || said != message {
		t.Errorf("got %d %s: %s\nwant %d %s: %s", a.status, got, said, code.Status(), code.Query(), message)
	}
}
