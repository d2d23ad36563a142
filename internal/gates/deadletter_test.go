package gates_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"
)

// TestG6DeadLettersSurviveKill kills a macronode and compares its dead letters,
// field by field, with those before.
func TestG6DeadLettersSurviveKill(t *testing.T) {
	d := start(t, onDisk...)
	operator := openHTTP(t, d.http, d.token)
	const letters = 10
	for i := range letters {
		id, _, err := operator.send(t.Context(), "orders", fmt.Sprint(i), fmt.Appendf(nil, "body %d", i))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := operator.receive(t.Context(), "orders", wanted{most: 1, visibility: time.Minute}); err != nil {
			t.Fatal(err)
		}
		if err := operator.post(t.Context(), "/v1/bury/"+id, object{"reason": "fatal", "error": fmt.Sprint("error ", i)}, nil); err != nil {
			t.Fatal(err)
		}
	}
	before := deadLetters(t, operator)
	if len(before) != letters {
		t.Fatalf("%d dead letters, want %d", len(before), letters)
	}
	for i, letter := range before {
		if letter["last_error"] != fmt.Sprint("error ", i) || letter["reason"] != "fatal" || letter["idem_key"] != fmt.Sprint(i) {
			t.Errorf("dead letter %d is %v", i, letter)
		}
	}
	d.Kill()
	d = d.again(onDisk...)
	if after := deadLetters(t, openHTTP(t, d.http, d.token)); !reflect.DeepEqual(after, before) {
		t.Errorf("after a kill the dead letters are\n%v\nwere\n%v", after, before)
	}
}

// deadLetters lists the dead letters over HTTP, oldest first.
func deadLetters(t *testing.T, h *httpSurface) (letters []object) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, h.base+"/v1/dlq/list", strings.NewReader(`{"topic":"orders"}`))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+h.token)
	response, err := h.client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	for lines := json.NewDecoder(response.Body); ; {
		var letter object
		if err := lines.Decode(&letter); err == io.EOF { //nolint:errorlint // it is never wrapped
			return letters
		} else if err != nil {
			t.Fatal(err)
		}
		letters = append(letters, letter)
	}
}
