package httpapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/spelling"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

// The routes in this file are for people with curl: paths name a queue, parameters are in
// the query, and bodies are raw.

// index is GET /: the name of the service, its documentation and its routes.
func (h *Handler) index(c *call) error {
	response := struct {
		Name          string   `json:"name"`
		Version       string   `json:"version,omitempty"`
		Documentation []string `json:"documentation"`
		Endpoints     []string `json:"endpoints"`
	}{Name: "mailboxd", Version: c.version(), Documentation: []string{"docs/http.md", "docs/access.md", "api/openapi.yaml"}}
	for _, route := range routes {
		response.Endpoints = append(response.Endpoints, route.Method+" "+route.Path)
	}
	return c.ok(response)
}

// queuesPath begins the paths about queues.
const queuesPath = "/v1/queues"

// unknownPath returns the error of a request that has no route. It names the route
// that was probably meant.
func (h *Handler) unknownPath(r *http.Request) error {
	var methods, paths []string
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		other := r.WithContext(r.Context()) // a copy
		other.Method = method
		if _, pattern := h.mux.Handler(other); pattern != "" {
			methods = append(methods, method)
		}
	}
	for _, route := range routes {
		paths = append(paths, route.Path)
	}
	path := shown(r.URL.Path)
	detail := fmt.Sprintf("there is no path %s; GET / lists all paths", path)
	switch near := spelling.Nearest(r.URL.Path, paths); {
	case len(methods) > 0:
		detail = fmt.Sprintf("path %s takes %s, not %.10q", path, strings.Join(methods, " and "), r.Method)
	case r.Method == http.MethodDelete && strings.HasPrefix(r.URL.Path, queuesPath):
		detail = fmt.Sprintf("there is no path %s; POST %s/delete deletes a queue", path, queuesPath)
	case (r.Method == http.MethodPut || r.Method == http.MethodPatch) && strings.HasPrefix(r.URL.Path, queuesPath):
		detail = fmt.Sprintf("there is no path %s; POST %s/configure creates or changes a queue", path, queuesPath)
	case near != "":
		detail = fmt.Sprintf("there is no path %s; did you mean %s? GET / lists all paths", path, near)
	}
	return &driver.Error{Code: driver.ErrNotFound, Op: r.Method, Detail: detail}
}

// decodeQuery reads the query of a request as strictly as a body. Lists are
// repeated or separated by commas.
func (c *call) decodeQuery(target any) error {
	values, err := url.ParseQuery(c.request.URL.RawQuery)
	if err != nil {
		return c.rejectQuery("query", "is not well formed")
	}
	fields, into := fieldsOf(reflect.TypeOf(target).Elem()), reflect.ValueOf(target).Elem()
	for name, texts := range values {
		index, known := fields[name]
		if !known {
			return c.rejectQuery("query", unknownField(name, fields))
		}
		field := into.FieldByIndex(index)
		if field.Kind() == reflect.Slice {
			field.Set(reflect.ValueOf(strings.Split(strings.Join(texts, ","), ",")))
			continue
		}
		if len(texts) > 1 {
			return c.rejectQuery(name, "is given twice")
		}
		if field.Kind() == reflect.Pointer {
			field.Set(reflect.New(field.Type().Elem()))
			field = field.Elem()
		}
		var token json.Token = texts[0]
		switch {
		case field.Kind() == reflect.Bool && (texts[0] == "true" || texts[0] == "false"):
			token = texts[0] == "true"
		case field.Kind() != reflect.String:
			token = json.Number(texts[0])
		}
		if err := setScalar(field, token, name); err != nil {
			c.handler.broker.Metrics().Rejected("schema")
			return err
		}
	}
	return nil
}

func (c *call) rejectQuery(field, detail string) error {
	c.handler.broker.Metrics().Rejected("schema")
	return schemaError(field, detail)
}

type sendBodyQuery struct {
	IdemKey       string   `json:"idem_key"`
	DelayMS       duration `json:"delay_ms"`
	DeliverAt     string   `json:"deliver_at"`
	TTLMS         duration `json:"ttl_ms"`
	Priority      int      `json:"priority"`
	UniqueKey     string   `json:"unique_key"`
	Replace       bool     `json:"replace"`
	Group         string   `json:"group"`
	ReplyTo       string   `json:"reply_to"`
	CorrelationID string   `json:"correlation_id"`
}

// sendBody is POST /v1/queues/{queue}/messages: the body of the request is the body of
// the message, whatever its type.
func (h *Handler) sendBody(c *call) error {
	var query sendBodyQuery
	if err := c.decodeQuery(&query); err != nil {
		return err
	}
	out := broker.Outgoing{Outgoing: driver.Outgoing{
		Body: c.body, Delay: time.Duration(query.DelayMS), TTL: time.Duration(query.TTLMS), Priority: query.Priority, DedupKey: query.IdemKey, Group: query.Group,
		UniqueKey: query.UniqueKey, Replace: query.Replace, ReplyTo: query.ReplyTo, CorrelationID: query.CorrelationID,
	}}
	var err error
	if out.DeliverAt, err = dueTime(query.DeliverAt); err != nil {
		return c.rejectQuery("deliver_at", dueTimeForm)
	}
	sent, err := c.caller.Send(c.ctx(), c.request.PathValue("topic"), []broker.Outgoing{out})
	if err = driver.At(err, 0); err != nil {
		return err
	}
	return c.ok(sendResponse{sent[0].ID, sent[0].Duplicate, sent[0].Replaced})
}

// peekPageLimit is the default limit of GET …/messages.
const peekPageLimit = 20

type peekQuery struct {
	searchRequest
	States    []string `json:"states"`
	MessageID string   `json:"msg_id"`
	Last      int      `json:"last"`
}

// peekPage is GET /v1/queues/{queue}/messages. It leases nothing.
func (h *Handler) peekPage(c *call) error {
	query := peekQuery{searchRequest: searchRequest{Limit: peekPageLimit}}
	if err := c.decodeQuery(&query); err != nil {
		return err
	}
	for i, name := range query.States {
		state := driver.State(strings.ReplaceAll(name, "_", " ")) // in_flight needs no escape
		switch state {
		case driver.StateReady, driver.StateDelayed, driver.StateInFlight, driver.StateDead:
		default:
			return c.rejectQuery("states", fmt.Sprintf("%.100q is not a state; want ready, delayed, in_flight or dead", name))
		}
		query.States[i] = string(state)
	}
	c.caller = c.caller.Existing()
	return h.peekFor(c, &peekRequest{
		searchRequest: query.searchRequest, Queue: c.request.PathValue("topic"), States: query.States, MessageID: query.MessageID, Last: query.Last,
	})
}

// statsPage is GET /v1/queues/{queue}/stats.
func (h *Handler) statsPage(c *call) error {
	if err := c.decodeQuery(&struct{}{}); err != nil {
		return err
	}
	c.caller = c.caller.Existing()
	return h.statsFor(c, c.request.PathValue("topic"))
}
