package httpapi

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/server/internal/wireerr"
)

// errorBody is an error in JSON. Code, message and corr_id are always present; the other
// fields are for programs.
type errorBody struct {
	Code       string   `json:"code"`
	Message    string   `json:"message"`
	CorrID     string   `json:"corr_id"`
	Kind       string   `json:"kind,omitempty"`
	Reason     string   `json:"reason,omitempty"`
	Op         string   `json:"op,omitempty"`
	Queue      string   `json:"topic,omitempty"`
	MessageID  string   `json:"msg_id,omitempty"`
	Field      string   `json:"field,omitempty"`
	Detail     string   `json:"detail,omitempty"`
	RetryAfter duration `json:"retry_after_ms,omitempty"`
	// Done is how much was done before the failure, for operations that can be done in
	// part.
	Done int `json:"done,omitempty"`
}

func (c *call) errorBody(err error) (errorBody, wireerr.Error) {
	w := wireerr.Of(err)
	if w.Field == "payload" {
		w.Field = "payload_b64" // its name in JSON
	}
	return errorBody{
		Code: w.Code, Message: w.Message(), CorrID: c.corr, Kind: w.Kind, Reason: w.Reason, Op: w.Op, Queue: w.Queue,
		MessageID: w.MessageID, Field: w.Field, Detail: w.Detail, RetryAfter: duration(w.RetryAfter),
	}, w
}

// fail answers with an error, if the answer has not begun.
func (c *call) fail(err error) { c.failAfter(err, 0) }

func (c *call) failAfter(err error, done int) {
	body, w := c.errorBody(err)
	body.Done = done
	if w.Code == wireerr.CodeUnavailable && c.ctx().Err() == nil {
		c.handler.log.LogAttrs(c.ctx(), slog.LevelError, "request failed", slog.String("corr_id", c.corr),
			slog.String("path", c.request.URL.Path), slog.String("error", err.Error()))
	}
	if c.status != 0 {
		return
	}
	header := c.writer.Header()
	if c.unread {
		// The rest of a refused request is not read, so the connection cannot be used
		// for another one.
		header.Set("Connection", "close")
		_ = c.control.SetReadDeadline(time.Now())
	}
	if seconds := w.RetrySeconds(); seconds > 0 {
		header.Set("Retry-After", strconv.Itoa(seconds))
	}
	if w.Code == wireerr.CodeCapAuth {
		header.Set("WWW-Authenticate", `Bearer realm="mailbox"`)
	}
	c.answer(w.Row().HTTP, body)
}

// answer writes a JSON object.
func (c *call) answer(status int, body any) {
	data, err := json.Marshal(body)
	if err != nil { // nothing here fails to encode
		status, data = http.StatusServiceUnavailable, []byte(`{"code":"E_UNAVAILABLE","message":"the answer could not be written","corr_id":""}`)
	}
	c.begin(status, "application/json")
	_, _ = c.writer.Write(append(data, '\n'))
}

// begin writes the header and sets the deadline for reading the answer.
func (c *call) begin(status int, contentType string) {
	c.status = status
	header := c.writer.Header()
	header.Set("Content-Type", contentType)
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	c.allowWrite()
	c.writer.WriteHeader(status)
}

func (c *call) allowWrite() {
	_ = c.control.SetWriteDeadline(time.Now().Add(c.handler.options.WriteTimeout))
}

func (c *call) ok(body any) error {
	c.answer(http.StatusOK, body)
	return nil
}

// positions are the results of a batch, one for each element.
type positions struct {
	Results []position `json:"results"`
}

type position struct {
	OK        bool   `json:"ok"`
	MessageID string `json:"msg_id,omitempty"`
	Duplicate bool   `json:"duplicate,omitempty"`
	Replaced  bool   `json:"replaced,omitempty"`
	// VisibilityMS is how long a delivery that was extended is leased from now on.
	VisibilityMS *duration  `json:"visibility_ms,omitempty"`
	Error        *errorBody `json:"error,omitempty"`
}

// answerPositions answers a batch of n: with the result of each position, or with the
// error if that concerns the whole batch.
func (c *call) answerPositions(n int, err error, sent []driver.Sent) error {
	return c.answerBatch(n, err, func(i int, p *position) {
		if i < len(sent) {
			p.MessageID, p.Duplicate, p.Replaced = sent[i].ID, sent[i].Duplicate, sent[i].Replaced
		}
	})
}

// answerBatch is answerPositions that calls done for each position that succeeded.
func (c *call) answerBatch(n int, err error, done func(i int, p *position)) error {
	batch := positions{Results: make([]position, n)}
	if err != nil {
		if _, isBatch := asBatch(err); !isBatch {
			return err
		}
	}
	for i := range batch.Results {
		if failure := driver.At(err, i); failure != nil {
			body, _ := c.errorBody(failure)
			body.CorrID = ""
			batch.Results[i].Error = &body
			continue
		}
		batch.Results[i].OK = true
		done(i, &batch.Results[i])
	}
	return c.ok(batch)
}

// lines writes lines of JSON as they are added.
type lines struct {
	call   *call
	buffer []byte
}

const ndjson = "application/x-ndjson"

// flushAt is how many bytes are buffered before they are written, about a chunk.
const flushAt = 64 << 10

func (l *lines) add(line []byte) error {
	l.buffer = append(append(l.buffer, line...), '\n')
	if len(l.buffer) >= flushAt {
		return l.flush()
	}
	return nil
}

func (l *lines) addValue(value any) error { return json.NewEncoder(l).Encode(value) }

// Write adds a line with its end, for json.Encoder. It does not copy a long one.
func (l *lines) Write(line []byte) (int, error) {
	if len(line) < flushAt {
		return len(line), l.add(line[:len(line)-1])
	}
	if len(l.buffer) > 0 {
		if err := l.flush(); err != nil {
			return 0, err
		}
	}
	l.begin()
	return l.call.writer.Write(line)
}

// flush writes the buffer. The first flush begins the answer.
func (l *lines) flush() error {
	l.begin()
	if len(l.buffer) > 0 {
		if _, err := l.call.writer.Write(l.buffer); err != nil {
			return err
		}
		l.buffer = l.buffer[:0]
	}
	return l.call.control.Flush()
}

// begin begins the answer, or goes on with it.
func (l *lines) begin() {
	if l.call.status == 0 {
		l.call.begin(http.StatusOK, ndjson)
	}
	l.call.allowWrite()
}

// end finishes the list. An error is the answer if no line was written yet, and
// otherwise the last line.
func (l *lines) end(err error) error {
	if err != nil {
		if l.call.status == 0 && len(l.buffer) == 0 {
			return err
		}
		body, _ := l.call.errorBody(err)
		_ = l.addValue(struct {
			Error errorBody `json:"error"`
		}{body})
	}
	_ = l.flush() // the client may have disconnected
	return nil
}
