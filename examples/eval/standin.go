package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"
)

// standIn is a small model server that speaks the protocol.
type standIn struct {
	url    string
	server *http.Server
	ended  chan struct{}
}

func startStandIn(ctx context.Context) (*standIn, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &standIn{
		url:    "http://" + listener.Addr().String() + "/v1",
		server: &http.Server{Handler: http.HandlerFunc(complete), ReadHeaderTimeout: 5 * time.Second},
		ended:  make(chan struct{}),
	}
	go func() {
		defer close(s.ended)
		_ = s.server.Serve(listener) // it returns when it is stopped
	}()
	return s, nil
}

func (s *standIn) stop() {
	_ = s.server.Close()
	<-s.ended
}

// complete answers one request.
func complete(w http.ResponseWriter, r *http.Request) {
	var asked struct {
		Messages []struct{ Content string } `json:"messages"`
	}
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil || len(asked.Messages) != 2 {
		http.Error(w, `{"error":{"message":"two messages are wanted"}}`, http.StatusBadRequest)
		return
	}
	manners, question := asked.Messages[0].Content, asked.Messages[1].Content
	if strings.Contains(question, "rate limit") {
		w.Header().Set("Retry-After", "1")
		http.Error(w, `{"error":{"message":"slow down","code":"rate_limit_exceeded"}}`, http.StatusTooManyRequests)
		return
	}
	answer := know(question)
	if strings.Contains(manners, "polite") {
		answer = "Thank you for asking! To the best of my knowledge, and with all due respect, the answer to your question is " + answer + "."
	}
	usage := map[string]int{"prompt_tokens": len(strings.Fields(manners + " " + question)), "completion_tokens": len(strings.Fields(answer))}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{ // the client may be gone
		"id": "answer", "model": "stand-in", "usage": usage,
		"choices": []any{map[string]any{"message": map[string]string{"role": "assistant", "content": answer}, "finish_reason": "stop"}},
	})
}

// know returns the model's answer to a question.
func know(question string) string {
	var a, b int
	if _, err := fmt.Sscanf(question, "%d + %d", &a, &b); err == nil {
		return fmt.Sprint(a + b)
	}
	switch question {
	case "capital of France":
		return "Paris"
	case "capital of Peru":
		return "Lima"
	}
	return "unknown"
}
