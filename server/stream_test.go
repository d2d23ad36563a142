package server_test

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/server"
)

func TestReadPartOfStreamStaysLeasedAfterDisconnect(t *testing.T) {
	r := start(t, server.Config{Profile: server.Micronode})
	payload := base64.StdEncoding.EncodeToString(make([]byte, 500_000))
	for i := range 24 {
		r.send("orders", fmt.Sprint("k", i), payload)
	}
	request, _ := http.NewRequest(http.MethodPost, r.base+"/v1/recv/stream",
		strings.NewReader(`{"topic":"orders","visibility_ms":60000,"max_bytes":16777216,"wait_ms":1000}`))
	request.Header.Set("Authorization", "Bearer "+r.OperatorToken().Reveal())
	response, err := r.client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReaderSize(response.Body, 1<<20).ReadBytes('\n')
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close() // ends the stream
	var first struct {
		ID      string `json:"msg_id"`
		Receipt string `json:"receipt"`
	}
	if err := json.Unmarshal(line, &first); err != nil {
		t.Fatal(err)
	}
	for patience := time.After(time.Minute); ; { // until the rest is ready again
		if _, stats := r.post(r.OperatorToken(), "/v1/stats", `{"topic":"orders"}`); stats["ready"] != 0.0 {
			break
		}
		select {
		case <-patience:
			t.Fatal("no message was returned")
		case <-time.After(10 * time.Millisecond):
		}
	}
	status, answer := r.post(r.OperatorToken(), "/v1/ack/"+first.ID, fmt.Sprintf(`{"topic":"orders","receipt":%q}`, first.Receipt))
	if status != http.StatusOK {
		t.Errorf("within a lease of a minute: %d %v", status, answer)
	}
}
