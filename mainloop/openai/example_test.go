package openai_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/mailboxmq/mailbox/mainloop"
	"github.com/mailboxmq/mailbox/mainloop/openai"
)

func ExampleNew() {
	// A stand-in for a model server.
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprint(w, `{"choices":[{"message":{"content":"Paris"}}],"usage":{"prompt_tokens":9,"completion_tokens":1}}`)
	}))
	defer server.Close()

	model := openai.New(server.URL+"/v1", &openai.Options{Model: "large", APIKey: "key", Client: server.Client()})
	response, err := model.Evaluate(context.Background(), mainloop.Ask("What is the capital of France?"))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(response.Text, response.Usage.TotalTokens())
	// Output: Paris 10
}
