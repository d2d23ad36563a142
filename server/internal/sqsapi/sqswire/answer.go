package sqswire

import (
	"errors"
	"net/http"
	"strconv"
	"sync"
)

// buffers keeps the memory of answers for reuse. What grew beyond keptBuffer is
// left to the garbage collector.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

const keptBuffer = 64 << 10

// Answer writes the answer to a request that was done. It blocks as long as the
// client does not read; its error is that of writing.
func (c *Call) Answer(w http.ResponseWriter, out Output) error {
	return c.write(w, http.StatusOK, func(b []byte) []byte { return c.appendAnswer(b, out) })
}

// Fail writes the answer to a request that failed. Errors that are no *Error,
// and wrap none, are told as an internal failure, without their text. It blocks
// as long as the client does not read; its error is that of writing.
func (c *Call) Fail(w http.ResponseWriter, err error) error {
	var failure *Error
	if !errors.As(err, &failure) {
		failure = InternalFailure.Default()
	}
	if c.Protocol == JSON {
		// Clients that used to speak Query go on with its codes.
		w.Header().Set("X-Amzn-Query-Error", failure.Code.Query()+";"+failure.fault())
	}
	if c.Protocol != JSON && c.Action == "" && failure.Code == UnknownOperation {
		// This is no call at all: somebody looks at the URL of a queue.
		return c.write(w, http.StatusNotFound, func(b []byte) []byte { return c.appendNothing(b) })
	}
	return c.write(w, failure.Code.Status(), func(b []byte) []byte { return c.appendFailure(b, failure) })
}

// write writes what fill appends.
func (c *Call) write(w http.ResponseWriter, status int, fill func(b []byte) []byte) error {
	buffer, _ := buffers.Get().(*[]byte)
	*buffer = fill((*buffer)[:0])
	defer func() {
		if cap(*buffer) <= keptBuffer {
			buffers.Put(buffer)
		}
	}()
	header := w.Header()
	header.Set("X-Amzn-Requestid", c.RequestID)
	header.Set("Content-Type", c.contentType())
	header.Set("Content-Length", strconv.Itoa(len(*buffer)))
	w.WriteHeader(status)
	_, err := w.Write(*buffer)
	return err
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

// appendAnswer appends an output. That of an action without results has no
// element for them.
func (c *Call) appendAnswer(b []byte, out Output) []byte {
	action := string(c.Action)
	m, list := membersOf(out)
	results := len(list) > 0
	m.release()
	switch c.Protocol {
	case JSON:
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
			b = appendXML(b, out)
			b = append(append(append(b, "</"...), action...), "Result>"...)
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

// appendNothing appends the answer to a request of Query without any action.
func (c *Call) appendNothing(b []byte) []byte {
	if c.Protocol == QueryJSON {
		return append(b, `{"Output":{"__type":"com.amazon.coral.service#UnknownOperationException","message":null},"Version":"1.0"}`...)
	}
	return append(b, "<UnknownOperationException/>\n"...)
}
