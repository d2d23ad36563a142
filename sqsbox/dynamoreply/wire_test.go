package dynamoreply_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/mailboxmq/mailbox/internal/testing/dynamotest"
	"github.com/mailboxmq/mailbox/sqsbox/dynamoreply"
)

func TestMain(m *testing.M) { dynamotest.Main(m) }

// A wire is the HTTP client between the SDK and dynalite. It counts requests and
// injects faults.
type wire struct {
	inner *dynamotest.Outside
	// virtual: responses have the time of the bubble's clock as their Date;
	// shifted by ahead, or without a Date.
	virtual bool
	ahead   time.Duration
	undated bool
	// after is called after each response; may be nil.
	after func(action string)
	// shows: the item is returned when a condition does not hold, as DynamoDB
	// does and dynalite does not.
	shows bool

	mu     sync.Mutex // guards the fields below
	counts map[string]int
	looks  int // items read by GetItem and BatchGetItem
	stale  int // reads that are not strongly consistent
	faults []fault
}

// A fault replaces a response.
type fault struct {
	action string // the action it applies to; "" means any
	every  int    // every n-th request; 0 and 1 mean each
	times  int    // how often; 0 means without end
	// code is the error code of the response, with its status. Without a code
	// the connection breaks: before the request is carried out or, if late,
	// after.
	code, message string
	status        int
	late          bool
	// hangs: there is no response until the request is cancelled.
	hangs bool
	// answer is the body of a successful response, instead of an error.
	answer string

	met int
}

func newWire(server *dynamotest.Server) *wire {
	return &wire{inner: server.Outside(), counts: make(map[string]int)}
}

func (w *wire) add(f fault) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.faults = append(w.faults, f)
}

func (w *wire) clear() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.faults = nil
}

// count returns how many requests of these kinds were sent.
func (w *wire) count(actions ...string) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, action := range actions {
		n += w.counts[action]
	}
	return n
}

// total returns how many requests were sent.
func (w *wire) total() (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, count := range w.counts {
		n += count
	}
	return n
}

// looked returns how many items were read.
func (w *wire) looked() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.looks
}

// meet counts a request and returns the fault for it, if there is one.
func (w *wire) meet(action string) (fault, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counts[action]++
	for i := range w.faults {
		f := &w.faults[i]
		if f.action != "" && f.action != action {
			continue
		}
		if f.met++; f.met%max(f.every, 1) == 0 && (f.times == 0 || f.met <= f.times*max(f.every, 1)) {
			return *f, true
		}
	}
	return fault{}, false
}

// Do sends a request to dynalite.
func (w *wire) Do(request *http.Request) (*http.Response, error) {
	_, action, _ := strings.Cut(request.Header.Get("X-Amz-Target"), ".")
	body, err := io.ReadAll(request.Body)
	if err != nil {
		return nil, err
	}
	w.countLooks(action, body)
	f, wrong := w.meet(action)
	if wrong && f.hangs {
		<-request.Context().Done()
		return nil, request.Context().Err()
	}
	if wrong && !f.late {
		return f.response(w)
	}
	request.Body = io.NopCloser(bytes.NewReader(body))
	response, err := w.inner.Do(request)
	if wrong {
		return f.response(w)
	}
	if err == nil && w.shows && response.StatusCode == http.StatusBadRequest {
		err = w.show(request, body, response)
	}
	if err == nil {
		w.date(response.Header)
	}
	if w.after != nil {
		w.after(action)
	}
	return response, err
}

// date sets the Date of a response.
func (w *wire) date(header http.Header) {
	switch {
	case w.undated:
		header.Del("Date")
	case w.virtual:
		header.Set("Date", time.Now().Add(w.ahead).UTC().Format(http.TimeFormat))
	}
}

func (w *wire) countLooks(action string, body []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch action {
	case "GetItem":
		w.looks++
	case "BatchGetItem":
		w.looks += bytes.Count(body, []byte(`{"id":`))
	case "Scan":
	default:
		return
	}
	// The probe reads an item that cannot exist, so it need not be consistent.
	if !bytes.Contains(body, []byte(`"ConsistentRead":true`)) && !bytes.Contains(body, []byte("{probe}")) {
		w.stale++
	}
}

// show adds the item to the error of a condition that did not hold.
func (w *wire) show(request *http.Request, body []byte, response *http.Response) error {
	var asked struct {
		TableName, ReturnValuesOnConditionCheckFailure string
		Key, Item                                      map[string]json.RawMessage
	}
	var refusal, shown map[string]json.RawMessage
	said, err := io.ReadAll(response.Body)
	if err == nil {
		err = errors.Join(json.Unmarshal(body, &asked), json.Unmarshal(said, &refusal))
	}
	if err != nil {
		return err
	}
	if strings.Contains(string(refusal["__type"]), "ConditionalCheckFailed") && asked.ReturnValuesOnConditionCheckFailure == "ALL_OLD" {
		key := asked.Key
		if key == nil {
			key = map[string]json.RawMessage{"id": asked.Item["id"]}
		}
		get, err := json.Marshal(map[string]any{"TableName": asked.TableName, "Key": key, "ConsistentRead": true})
		if err != nil {
			return err
		}
		look := request.Clone(request.Context())
		look.Header.Set("X-Amz-Target", "DynamoDB_20120810.GetItem")
		look.Body, look.ContentLength = io.NopCloser(bytes.NewReader(get)), int64(len(get))
		found, err := w.inner.Do(look)
		if err != nil {
			return err
		}
		defer found.Body.Close()
		if err := json.NewDecoder(found.Body).Decode(&shown); err != nil {
			return err
		}
		if item, ok := shown["Item"]; ok {
			refusal["Item"] = item
		}
		if said, err = json.Marshal(refusal); err != nil {
			return err
		}
	}
	response.Header.Del("X-Amz-Crc32") // it is that of the original body
	response.Body, response.ContentLength = io.NopCloser(bytes.NewReader(said)), int64(len(said))
	return nil
}

var errCut = errors.New("the connection was cut")

func (f fault) response(w *wire) (*http.Response, error) {
	body, status := f.answer, http.StatusOK
	if body == "" {
		if f.code == "" {
			return nil, errCut
		}
		text, err := json.Marshal(map[string]string{"__type": "com.amazonaws.dynamodb.v20120810#" + f.code, "message": f.message})
		if err != nil {
			return nil, err
		}
		body, status = string(text), f.status
		if status == 0 {
			status = http.StatusBadRequest
		}
	}
	header := http.Header{"Content-Type": {"application/x-amz-json-1.0"}}
	w.date(header)
	return &http.Response{
		StatusCode: status, Status: fmt.Sprint(status), Header: header, ProtoMajor: 1, ProtoMinor: 1,
		Body: io.NopCloser(bytes.NewReader([]byte(body))), ContentLength: int64(len(body)),
	}, nil
}

// client returns a client that uses the wire.
func (w *wire) client(server *dynamotest.Server) *dynamodb.Client {
	return server.Client(func(o *dynamodb.Options) { o.HTTPClient = w })
}

// open opens a store in a table, which is created.
func (w *wire) open(t testing.TB, server *dynamotest.Server, table string, options *dynamoreply.Options) *dynamoreply.Store {
	t.Helper()
	var o dynamoreply.Options
	if options != nil {
		o = *options
	}
	o.CreateTable = true
	store, err := dynamoreply.Open(t.Context(), w.client(server), table, &o)
	if err != nil {
		t.Fatal(err)
	}
	return store.(*dynamoreply.Store)
}
