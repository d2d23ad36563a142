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

// maxDetailBytes bounds what is kept of a text that a server explains itself with.
const maxDetailBytes = 1 << 10

// refusal is the error of an answer whose status says that it is one.
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

// secretBytes is how long a header has to be to be taken for a key.
const secretBytes = 8

// redact leaves the keys out of a text that a server has sent: some repeat them,
// and texts go to logs and clients.
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

// classify says what kind of error a status is, given what the server calls it.
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

// retryAfter reads when the server wants to be asked again; 0 if it does not say.
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

// maxRetryAfter bounds how long a server can make us wait.
const maxRetryAfter = 24 * time.Hour

// duration is so many units, whatever nonsense the number is.
func duration(n float64, unit time.Duration) time.Duration {
	if !(n > 0) { // which NaN is not either
		return 0
	}
	return time.Duration(min(n*float64(unit), float64(maxRetryAfter)))
}
