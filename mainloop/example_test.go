package mainloop_test

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/mainloop"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/reply"
)

// A Question is what the agent of the example is asked.
type Question struct {
	Text     string `json:"text"`
	Language string `json:"language"`
}

// An agent, and a client that asks it.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	store := reply.NewMemory(nil) // one that all processes reach, in earnest
	questions, err := mailbox.Open(ctx, membox.New(nil), "questions", &mailbox.Options[mainloop.Request[Question]]{Replies: store})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer questions.Close()

	// A model within the process; see package openai for one on a server.
	model := mainloop.AdapterFunc(func(_ context.Context, prompt *mainloop.Prompt) (mainloop.Response, error) {
		text := strings.ToUpper(prompt.Turns[1].Text)
		return mainloop.Response{Text: text, Usage: mainloop.Usage{InputTokens: 12, OutputTokens: 3}}, nil
	})
	agent := mainloop.New(questions, model, func(_ context.Context, run *mainloop.Run[Question]) (*mainloop.Prompt, error) {
		return &mainloop.Prompt{Turns: []mainloop.Turn{
			{Role: mainloop.RoleSystem, Text: "Answer in " + run.Request.Body.Language + "."},
			{Role: mainloop.RoleUser, Text: run.Request.Body.Text},
		}}, nil
	}, &mainloop.Options[Question, string]{Budget: mainloop.Budget{MaxTotalTokens: 100}})
	ended := make(chan error)
	go func() { ended <- agent.Run(ctx) }()

	client := mainloop.NewClient[Question, string](questions, store, nil)
	result, err := client.Call(ctx, mainloop.NewRequest(Question{Text: "tea or coffee?", Language: "English"}))
	fmt.Println(result.Output, result.Usage.TotalTokens(), err)

	// A request can bring a budget of its own.
	request := mainloop.NewRequest(Question{Text: "tea or coffee?", Language: "English"})
	request.Budget = mainloop.Budget{MaxInputTokens: 10}
	_, err = client.Call(ctx, request)
	fmt.Println(err, errors.Is(err, mailbox.FailureKind(mainloop.ErrBudget)))
	stop()
	fmt.Println(<-ended)
	// Output:
	// TEA OR COFFEE? 15 <nil>
	// budget exceeded: input tokens: 12 of 10 true
	// <nil>
}

// An agent can be asked without a mailbox.
func ExampleMainLoop_Execute() {
	model := mainloop.AdapterFunc(func(context.Context, *mainloop.Prompt) (mainloop.Response, error) {
		return mainloop.Response{Text: `{"drink":"tea","sugar":2}`}, nil
	})
	type order struct {
		Drink string
		Sugar int
	}
	agent := mainloop.New(nil, model, func(_ context.Context, run *mainloop.Run[string]) (*mainloop.Prompt, error) {
		return mainloop.Ask(run.Request.Body), nil
	}, (*mainloop.Options[string, order])(nil))
	result, _, err := agent.Execute(context.Background(), mainloop.NewRequest("tea, two sugars, please"))
	fmt.Printf("%+v %v\n", result.Output, err)
	// Output: {Drink:tea Sugar:2} <nil>
}
