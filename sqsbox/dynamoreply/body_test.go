package dynamoreply_test

import (
	"io"
	"net/http"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/mailboxmq/mailbox/internal/testing/dynamotest"
	"github.com/mailboxmq/mailbox/sqsbox/dynamoreply"
)

// A requestRecorder keeps the requests that a client sends.
type requestRecorder struct {
	dynamodb.HTTPClient
	mu   sync.Mutex // guards kept
	kept []*http.Request
}

func (k *requestRecorder) Do(r *http.Request) (*http.Response, error) {
	k.mu.Lock()
	k.kept = append(k.kept, r)
	k.mu.Unlock()
	return k.HTTPClient.Do(r)
}

// The transport reads a body once more when all of it is sent, possibly after the response
// has begun. If the SDK had closed the body by then, the transport would close the
// connection, and lose the rest of the response with a consumed reply in it.
func TestBodiesStayReadableAfterTheResponse(t *testing.T) {
	server := dynamotest.Shared(t)
	requests := &requestRecorder{HTTPClient: server.Outside()}
	client := server.Client(func(o *dynamodb.Options) { o.HTTPClient = requests })
	store, err := dynamoreply.Open(t.Context(), client, dynamotest.Table(), &dynamoreply.Options{CreateTable: true})
	if err != nil {
		t.Fatal(err)
	}
	create(t, store, "a")
	wantError(t, store.Resolve(t.Context(), "a", tea("yes")), nil)
	_, err = store.Consume(t.Context(), "a")
	wantError(t, err, nil)
	if len(requests.kept) < 3 {
		t.Fatalf("%d requests were sent", len(requests.kept))
	}
	for _, r := range requests.kept {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			t.Errorf("%s: reading past the end of the body: %v", r.Header.Get("X-Amz-Target"), err)
		}
	}
}
