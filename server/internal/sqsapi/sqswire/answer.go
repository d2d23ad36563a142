package sqswire

import (
	"errors"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// buffers pools the memory of answers. Buffers larger than keptBuffer are not kept.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

const keptBuffer = 64 << 10

// keep returns a buffer to the pool.
func keep(buffer *[]byte) {
	if cap(*buffer) <= keptBuffer {
		buffers.Put(buffer)
	}
}

// An Answer is the response to a client, as it goes over the wire.
type Answer struct {
	Status      int
	ContentType string
	RequestID   string
	// QueryError is the header X-Amzn-Query-Error; empty for none.
	QueryError string
	// Body is valid until the answer is written.
	Body []byte
}

// An Answerer writes an answer. It blocks while the client does not read; its error is
// that of writing.
type Answerer interface{ WriteAnswer(a *Answer) error }

// minBytesPerSecond is the rate at which a client must send and read at least. Ten
// messages of 1 MiB need more time than most requests.
const minBytesPerSecond = 64 << 10

// TransferTime returns how much longer than usual a client may take for a request or an
// answer of this many bytes.
func TransferTime(bytes int64) time.Duration {
	return time.Duration(max(bytes, 0)) * time.Second / minBytesPerSecond
}

// OverHTTP returns an Answerer for a connection of package http. An answer that the
// client does not read within the timeout and TransferTime is cut off; a timeout of 0
// means no limit.
func OverHTTP(w http.ResponseWriter, timeout time.Duration) Answerer {
	return responseWriter{w, timeout}
}

type responseWriter struct {
	http.ResponseWriter
	timeout time.Duration
}

// WriteAnswer writes an answer.
func (w responseWriter) WriteAnswer(a *Answer) error {
	if w.timeout > 0 {
		deadline := time.Now().Add(w.timeout + TransferTime(int64(len(a.Body))))
		_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(deadline)
	}
	header := w.Header()
	if a.QueryError != "" {
		header.Set("X-Amzn-Query-Error", a.QueryError)
	}
	header.Set("X-Amzn-Requestid", a.RequestID)
	header.Set("Content-Type", a.ContentType)
	header.Set("Content-Length", strconv.Itoa(len(a.Body)))
	w.WriteHeader(a.Status)
	_, err := w.Write(a.Body)
	return err
}

// Answer writes the answer to a request that succeeded. It blocks while the client does
// not read; its error is that of writing.
func (c *Call) Answer(w http.ResponseWriter, out Output) error {
	return c.AnswerTo(responseWriter{w, 0}, out)
}

// AnswerTo is Answer for another kind of connection.
func (c *Call) AnswerTo(w Answerer, out Output) error {
	buffer, _ := buffers.Get().(*[]byte)
	*buffer = c.appendAnswer((*buffer)[:0], out)
	c.answer = Answer{Status: http.StatusOK}
	return c.write(w, buffer)
}

// Fail writes the answer to a request that failed. An error that does not wrap an
// *Error is answered as an internal failure, without its text. It blocks while the
// client does not read; its error is that of writing.
func (c *Call) Fail(w http.ResponseWriter, err error) error {
	return c.FailTo(responseWriter{w, 0}, err)
}

// FailTo is Fail for another kind of connection.
func (c *Call) FailTo(w Answerer, err error) error {
	var failure *Error
	if !errors.As(err, &failure) {
		failure = InternalFailure.Default()
	}
	c.answer = Answer{Status: failure.Code.Status()}
	if c.Protocol == JSON {
		// Clients that were written for Query still use its codes.
		c.answer.QueryError = failure.Code.Query() + ";" + failure.fault()
	}
	buffer, _ := buffers.Get().(*[]byte)
	if c.Protocol != JSON && c.Action == "" && failure.Code == UnknownOperation {
		// A request without an action, such as a browser that opens the URL of a queue:
		// AWS answers in XML whatever the client accepts.
		c.Protocol = Query
		c.answer.Status = http.StatusNotFound
		*buffer = append((*buffer)[:0], "<UnknownOperationException/>\n"...)
	} else {
		*buffer = c.appendFailure((*buffer)[:0], failure)
	}
	return c.write(w, buffer)
}

// write writes the answer with a body from buffers, and returns that to the pool.
func (c *Call) write(w Answerer, buffer *[]byte) error {
	defer keep(buffer)
	c.answer.RequestID, c.answer.ContentType, c.answer.Body = c.RequestID, c.contentType(), *buffer
	return w.WriteAnswer(&c.answer)
}

func (c *Call) contentType() string {
	switch c.Protocol {
	case JSON:
		return jsonContentType
	case QueryJSON:
		return "application/json"
	default:
		return "text/xml"
	}
}

// appendAnswer appends an output. An action without results has no element for them
// in XML and an empty body in JSON; results without members are an empty element.
func (c *Call) appendAnswer(b []byte, out Output) []byte {
	action := string(c.Action)
	m, list := membersOf(out)
	results := len(list) > 0
	m.release()
	switch c.Protocol {
	case JSON:
		if !results {
			return b
		}
		return appendJSON(b, out)
	case QueryJSON:
		b = append(append(append(b, `{"`...), action...), `Response":{`...)
		if results {
			b = append(append(append(b, '"'), action...), `Result":`...)
			b = append(appendTree(b, out), ',')
		}
		b = appendQuoted(append(b, `"ResponseMetadata":{"RequestId":`...), c.RequestID)
		return append(b, "}}}"...)
	default:
		b = append(append(append(b, xmlProlog+"<"...), action...), "Response"+xmlNamespace+">"...)
		if results {
			b = append(append(append(b, '<'), action...), "Result>"...)
			empty := len(b)
			if b = appendXML(b, out); len(b) == empty {
				b = append(b[:empty-1], "/>"...)
			} else {
				b = append(append(append(b, "</"...), action...), "Result>"...)
			}
		}
		b = append(appendElement(append(b, "<ResponseMetadata>"...), "RequestId", c.RequestID), "</ResponseMetadata>"...)
		return append(append(append(b, "</"...), action...), "Response>"...)
	}
}

func (c *Call) appendFailure(b []byte, e *Error) []byte {
	switch c.Protocol {
	case JSON:
		b = appendQuoted(append(b, `{"__type":`...), e.Code.shape())
		b = appendQuoted(append(b, `,"message":`...), e.Message)
		return append(b, '}')
	case QueryJSON:
		b = appendQuoted(append(b, `{"Error":{"Code":`...), e.Code.Query())
		b = appendQuoted(append(b, `,"Detail":null,"Message":`...), e.queryMessage())
		b = appendQuoted(append(b, `,"Type":`...), e.fault())
		b = appendQuoted(append(b, `},"RequestId":`...), c.RequestID)
		return append(b, '}')
	default:
		b = append(b, xmlProlog+"<ErrorResponse"+xmlNamespace+"><Error>"...)
		b = appendElement(b, "Type", e.fault())
		b = appendElement(b, "Code", e.Code.Query())
		b = appendElement(b, "Message", e.queryMessage())
		b = appendElement(append(b, "<Detail/></Error>"...), "RequestId", c.RequestID)
		return append(b, "</ErrorResponse>"...)
	}
}
