package httpapi

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Readiness tells whether a daemon is ready.
type Readiness struct {
	// Missing names what keeps the daemon from being ready; empty means that it is
	// ready. Degraded: it refuses writes because of that or, if nothing is missing, some
	// queues do not work as they should; the notes say why.
	Missing  []string
	Degraded bool
	// Notes are facts that an operator should know, and that are harmless alone.
	Notes map[string]string
}

// retryReady is the Retry-After of a daemon that is not ready.
const retryReady = 2 * time.Second

// healthy is GET /healthz: the process is alive.
func (h *Handler) healthy(c *call) error {
	return c.ok(struct {
		Status  string `json:"status"`
		Version string `json:"version,omitempty"`
	}{"ok", c.version()})
}

// version returns the version of the daemon for trusted clients, and "" for others, which
// could look up its vulnerabilities.
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

// ready is GET /readyz: whether this daemon should get requests.
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

// metrics is GET /metrics, in the format of Prometheus. It needs a token for stats on all
// queues, because the metrics name queues.
func (h *Handler) metrics(c *call) error {
	if err := c.caller.MayMeasure(c.ctx()); err != nil {
		return err
	}
	return h.figures(c)
}

// Open returns a handler of health, readiness and metrics without tokens. It is for an
// address that only clients that may see the metrics can reach.
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

// figures writes the metrics.
func (h *Handler) figures(c *call) error {
	h.broker.Measure(c.ctx())
	c.status = http.StatusOK
	c.allowWrite()
	promhttp.HandlerFor(h.broker.Metrics().Registry, promhttp.HandlerOpts{}).ServeHTTP(c.writer, c.request)
	return nil
}
