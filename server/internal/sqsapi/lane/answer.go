package lane

import (
	"net/http"
	"strconv"
	"time"

	"github.com/mailboxmq/mailbox/server/internal/sqsapi/sqswire"
)

// appendHead appends what comes before the body of an answer.
func appendHead(b []byte, a *sqswire.Answer, date string, last bool) []byte {
	b = append(b, "HTTP/1.1 "...)
	b = strconv.AppendInt(b, int64(a.Status), 10)
	b = append(append(append(b, ' '), http.StatusText(a.Status)...), "\r\nX-Amzn-Requestid: "...)
	b = append(append(b, a.RequestID...), "\r\nContent-Type: "...)
	b = append(append(b, a.ContentType...), "\r\nContent-Length: "...)
	b = strconv.AppendInt(b, int64(len(a.Body)), 10)
	if a.QueryError != "" {
		b = append(append(b, "\r\nX-Amzn-Query-Error: "...), a.QueryError...)
	}
	if last {
		b = append(b, "\r\nConnection: close"...)
	}
	return append(append(append(b, "\r\nDate: "...), date...), "\r\n\r\n"...)
}

// A date is the current second, written as HTTP has it.
type date struct {
	second int64
	text   string
}

func (d *date) at(now time.Time) string {
	if second := now.Unix(); d.text == "" || second != d.second {
		d.second, d.text = second, now.UTC().Format(http.TimeFormat)
	}
	return d.text
}
