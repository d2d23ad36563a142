package openai

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/mainloop"
)

// maxDetailBytes bounds the server's message in an error.
const maxDetailBytes = 1 << 10

// refusal returns the error of an answer with an error status.
func (a *Adapter) refusal(answer *http.Response, body []byte) error {
	var told struct {
		Error struct {
			Message string `json:"message"`
			Type    string `json:"type"`
			Code    any    `json:"code"` // a string, where it is not a number
		} `json:"error"`
	}
	detail := strings.TrimSpace(string(body))
	if err := json.Unmarshal(body, &told); err == nil && told.Error.Message != "" {
		detail = told.Error.Message
	}
	if to, err := answer.Location(); err == nil && answer.StatusCode < 400 {
		detail = "the server wants to be asked at " + to.Host
	}
	detail = a.redact(detail)
	if len(detail) > maxDetailBytes {
		detail = strings.ToValidUTF8(detail[:maxDetailBytes], "")
	}
	code, _ := told.Error.Code.(string)
	return &mainloop.AdapterError{
		Code: classify(answer.StatusCode, code, told.Error.Type), Status: answer.StatusCode,
		Detail: detail, RetryAfter: retryAfter(answer.Header),
	}
}

// secretBytes is the least length of a header that is treated as a key.
const secretBytes = 8

// redact removes keys from a server's message: some servers repeat them, and messages
// go to logs and clients.
func (a *Adapter) redact(text string) string {
	hide := func(secret string) {
		if len(secret) >= secretBytes {
			text = strings.ReplaceAll(text, secret, "…")
		}
	}
	hide(a.options.APIKey)
	for _, values := range a.options.Header {
		for _, value := range values {
			hide(value)
			_, token, _ := strings.Cut(value, " ") // after "Bearer", for example
			hide(token)
		}
	}
	return text
}

// classify returns the code for a status and the server's error type.
func classify(status int, code, kind string) mailbox.Code {
	said := func(words ...string) bool {
		for _, word := range words {
			if strings.Contains(code, word) || strings.Contains(kind, word) {
				return true
			}
		}
		return false
	}
	switch {
	case said("insufficient_quota", "billing"), status == http.StatusPaymentRequired:
		return mainloop.ErrQuota
	case said("content_filter", "content_policy", "moderation"):
		return mainloop.ErrPolicy
	case status == http.StatusTooManyRequests:
		return mainloop.ErrRateLimited
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return mainloop.ErrCredentials
	case status == http.StatusRequestTimeout, status == http.StatusConflict, status == http.StatusTooEarly, status >= 500:
		return mainloop.ErrModelUnavailable
	}
	return mainloop.ErrRejected
}

// retryAfter returns the delay that the server asks for; 0 if it gives none.
func retryAfter(header http.Header) time.Duration {
	if milliseconds, err := strconv.ParseFloat(header.Get("Retry-After-Ms"), 64); err == nil {
		return duration(milliseconds, time.Millisecond)
	}
	value := header.Get("Retry-After")
	if seconds, err := strconv.ParseFloat(value, 64); err == nil {
		return duration(seconds, time.Second)
	}
	if at, err := http.ParseTime(value); err == nil {
		return min(max(0, time.Until(at)), maxRetryAfter)
	}
	return 0
}

// maxRetryAfter bounds the delay that a server can ask for.
const maxRetryAfter = 24 * time.Hour

// duration returns n units, and 0 for an invalid number.
func duration(n float64, unit time.Duration) time.Duration {
	if !(n > 0) { // also for NaN
		return 0
	}
	return time.Duration(min(n*float64(unit), float64(maxRetryAfter)))
}
