package sqsapi

import (
	"io"
	"net/http"
)

// Compatible wraps a handler and answers the health checks of other emulators: GET
// /health as ElasticMQ does, and GET /_localstack/health.
func Compatible(other http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet || r.Method == http.MethodHead {
			switch r.URL.Path {
			case "/health":
				healthy(w, "text/plain; charset=utf-8", "OK")
				return
			case "/_localstack/health":
				healthy(w, "application/json", `{"services":{"sqs":"running"},"edition":"mailbox","version":"mailbox"}`)
				return
			}
		}
		other.ServeHTTP(w, r)
	})
}

func healthy(w http.ResponseWriter, contentType, body string) {
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Cache-Control", "no-store")
	_, _ = io.WriteString(w, body)
}
