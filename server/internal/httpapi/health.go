package httpapi

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Readiness is what a daemon is ready for.
type Readiness struct {
	// Missing names what keeps it from being ready. Degraded says that it refuses
	// writes for it or, if nothing is missing, that some queues do not work as they
	// should; the notes say why. A daemon that misses nothing is ready.
	Missing  []string
	Degraded bool
	// Notes are what an operator should know and what does no harm by itself.
	Notes map[string]string
}

// retryReady is when to ask again.
const retryReady = 2 * time.Second

// healthy is GET /healthz: the process lives.
func (h *Handler) healthy(c *call) error {
	return c.ok(struct {
		Status  string `json:"status"`
		Version string `json:"version,omitempty"`
	}{"ok", c.version()})
}

// version returns the version of the daemon for who may know it: strangers could look
// up what is wrong with it.
func (c *call) version() string {
	if !c.trusted {
		return ""
	}
	return c.handler.options.Version
}

type readyResponse struct {
	Ready      bool              `json:"ready"`
	Degraded   bool              `json:"degraded"`
	Version    string            `json:"version,omitempty"`
	Missing    []string          `json:"missing"`
	RetryAfter int               `json:"retry_after,omitempty"`
	Notes      map[string]string `json:"notes,omitempty"`
}

// ready is GET /readyz: whether work should be sent here.
func (h *Handler) ready(c *call) error {
	var state Readiness
	if h.options.Ready != nil {
		state = h.options.Ready(c.ctx())
	}
	response := readyResponse{Ready: len(state.Missing) == 0, Degraded: state.Degraded, Version: c.version(), Missing: state.Missing, Notes: state.Notes}
	if response.Missing == nil {
		response.Missing = []string{}
	}
	status := http.StatusOK
	if !response.Ready {
		status = http.StatusServiceUnavailable
		response.RetryAfter = int(retryReady / time.Second)
		c.writer.Header().Set("Retry-After", strconv.Itoa(response.RetryAfter))
	}
	c.answer(status, response)
	return nil
}

// metrics is GET /metrics, in the form of Prometheus, for who may count
// everything: the figures name queues.
func (h *Handler) metrics(c *call) error {
	if err := c.caller.MayMeasure(c.ctx()); err != nil {
		return err
	}
	return h.figures(c)
}

// Open returns a handler of health, readiness and metrics that asks for no token.
// It is for an address that only those can reach who may see the figures.
func (h *Handler) Open() http.Handler {
	mux := http.NewServeMux()
	for _, route := range []Route{
		{Method: "GET", Path: "/healthz", alone: true, serve: (*Handler).healthy},
		{Method: "GET", Path: "/readyz", alone: true, serve: (*Handler).ready},
		{Method: "GET", Path: "/metrics", alone: true, serve: (*Handler).figures},
	} {
		mux.Handle(route.Method+" "+route.Path, h.route(route))
	}
	return mux
}

// figures shows the metrics.
func (h *Handler) figures(c *call) error {
	h.broker.Measure(c.ctx())
	c.status = http.StatusOK
	c.allowWrite()
	promhttp.HandlerFor(h.broker.Metrics().Registry, promhttp.HandlerOpts{}).ServeHTTP(c.writer, c.request)
	return nil
}
