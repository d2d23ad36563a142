package console

import (
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/share"
	"github.com/mailboxmq/mailbox/server/internal/broker"
	"github.com/mailboxmq/mailbox/server/internal/guard"
	"github.com/mailboxmq/mailbox/server/internal/wireerr"
)

// Options configure a Handler.
type Options struct {
	Broker *broker.Broker
	// Logger gets a line for each page that failed because of the daemon. Nil logs nothing.
	Logger *slog.Logger
	// WriteTimeout bounds how long a browser may take to read a page; 0 means
	// DefaultWriteTimeout.
	WriteTimeout time.Duration
	// Hosts are the host names that are allowed in requests without a session.
	Hosts guard.Hosts
	// Health returns the state of the daemon; nil means that nothing is known.
	Health func(ctx context.Context) Health
	// Settings returns the settings in force, for operators; nil means none.
	Settings func() []Setting
	// Version is that of the daemon.
	Version string
	// LookTime is how long a page looks at queues and messages beyond the least that it shows; 0 means
	// DefaultLookTime.
	LookTime time.Duration
}

// Health is the state of a daemon.
type Health struct {
	// Missing names what keeps the daemon from being ready; see docs/operating.md.
	Missing  []string
	Degraded bool
	// Notes are facts that an operator should know.
	Notes map[string]string
}

// A Setting is a setting of the daemon, without secrets.
type Setting struct{ Key, Value, Help string }

const (
	// DefaultWriteTimeout and DefaultLookTime are those of Options.
	DefaultWriteTimeout = 5 * time.Second
	DefaultLookTime     = 150 * time.Millisecond
	// maxFormBytes bounds the body of a POST: a token has 4 KiB at most, a message id less. maxSessionFormBytes is that
	// of a session, for the body of a schedule, which may take three times its 64 KiB, and its attributes.
	maxFormBytes        = 64 << 10
	maxSessionFormBytes = 512 << 10
	// pageTimeout bounds the work for a page.
	pageTimeout = 10 * time.Second
)

// A Handler serves the console. It is an http.Handler, which looks at the last segment of
// a path only.
type Handler struct {
	options  Options
	broker   *broker.Broker
	log      *slog.Logger
	sessions sessions
	streams  streams
	foreign  *http.CrossOriginProtection
}

// New returns a handler. It does no I/O and starts no goroutine. Close ends it.
func New(options Options) *Handler {
	if options.WriteTimeout == 0 {
		options.WriteTimeout = DefaultWriteTimeout
	}
	if options.LookTime == 0 {
		options.LookTime = DefaultLookTime
	}
	h := &Handler{options: options, broker: options.Broker, log: options.Logger, foreign: http.NewCrossOriginProtection()}
	if h.log == nil {
		h.log = slog.New(slog.DiscardHandler)
	}
	h.sessions.init()
	h.streams.init()
	return h
}

// Shares returns the figures of sessions and live streams, which tenants and tokens share, for metrics.
func (h *Handler) Shares() []share.Stats {
	return []share.Stats{h.sessions.pool.Stats(), h.streams.pool.Stats()}
}

// Close ends live streams, so that a drain does not wait for them. Closing twice is fine.
func (h *Handler) Close() { h.streams.close() }

// A screen is a page that GET shows.
type screen struct {
	path  string
	title string
	part  string // the title of the screen in the navigation that it belongs to
	show  func(v *view, p *page) error
}

var screens []screen

// The table is filled in init, because its functions refer to it.
func init() {
	screens = []screen{
		{"", "Overview", "Overview", overview},
		{"queues", "Queues", "Queues", queueList},
		{"queue", "Queue", "Queues", queuePage},
		{"groups", "Groups", "Queues", groupList},
		{"message", "Message", "Queues", messagePage},
		{"tenants", "Tenants", "Tenants", tenantList},
		{"workers", "Workers", "Workers", workerList},
		{"dead", "Dead letters", "Dead letters", deadPage},
		{"jobs", "Jobs", "Dead letters", jobList},
		{"job", "Job", "Dead letters", jobPage},
		{"requests", "Requests", "Requests", requestList},
		{"request", "Request", "Requests", requestPage},
		{"schedules", "Schedules", "Schedules", scheduleList},
		{"schedule", "Schedule", "Schedules", schedulePage},
		{"edit-schedule", "Schedule", "Schedules", scheduleEditor},
		{"access", "Access", "Access", accessPage},
		{"health", "Health", "Health", healthPage},
		{"confirm", "Confirm", "", confirmPage},
	}
}

func screenAt(path string) *screen {
	for i := range screens {
		if screens[i].path == path {
			return &screens[i]
		}
	}
	return nil
}

// policy allows what the daemon serves itself, and nothing inline.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; frame-ancestors 'none'; base-uri 'none'"

func secure(header http.Header) {
	header.Set("Content-Security-Policy", policy)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("X-Frame-Options", "DENY")
	header.Set("Referrer-Policy", "same-origin")
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	header.Set("Cache-Control", "no-store")
}

// ServeHTTP answers one request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	secure(w.Header())
	control := http.NewResponseController(w)
	_ = control.SetWriteDeadline(time.Now().Add(h.options.WriteTimeout + pageTimeout))
	name := path.Base(r.URL.Path)
	if strings.HasSuffix(r.URL.Path, "/") {
		name = ""
	}
	if serveAsset(w, r, name) {
		return
	}
	ctx, cancel := r.Context(), func() {}
	if name != "live" {
		ctx, cancel = context.WithTimeout(ctx, pageTimeout)
	}
	defer cancel()
	v := &view{handler: h, writer: w, request: r.WithContext(ctx), corr: correlationID()}
	if err := v.serve(name); err != nil {
		v.fail(err)
	}
}

func correlationID() string {
	id, err := uuid.NewV7()
	if err != nil {
		return ""
	}
	return id.String()
}

// A view is one request of a person.
type view struct {
	handler *Handler
	writer  http.ResponseWriter
	request *http.Request
	corr    string
	session *session // nil before the login
	caller  broker.Caller
	// tenant is the one whose queues an operator looks into; empty: those of the token.
	tenant string
	// secret is what a change made for the person to copy; see notice.
	secret string
	// recent is how old the figures of queues may be: 0, but in live pages, which share them.
	recent time.Duration
	// values are the parameters of the page.
	values url.Values
}

func (v *view) ctx() context.Context { return v.request.Context() }

func (v *view) get(name string) string { return v.values.Get(name) }

func (v *view) origin() broker.Origin {
	return broker.Origin{Client: broker.ClientAt(v.request.RemoteAddr), Peer: broker.PeerOf(v.request.TLS), CorrelationID: v.corr}
}

func invalid(field, detail string) error {
	return &driver.Error{Code: driver.ErrInvalid, Op: "read", Field: field, Detail: detail}
}

var errNoPage = &driver.Error{Code: driver.ErrNotFound, Op: "show", Detail: "the console has no such page"}

// serve routes a request.
func (v *view) serve(name string) error {
	method := v.request.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	if method == http.MethodPost {
		if err := v.handler.foreign.Check(v.request); err != nil {
			return &driver.Error{Code: driver.ErrForbidden, Op: "read", Detail: "the request came from another site"}
		}
	}
	if name == "code" && method == http.MethodPost {
		return v.makeCode()
	}
	limit := int64(maxSessionFormBytes)
	if v.session = v.handler.sessions.find(v.request); v.session == nil {
		limit = maxFormBytes
	}
	v.request.Body = http.MaxBytesReader(v.writer, v.request.Body, limit)
	if v.session == nil {
		return v.serveStranger(name, method)
	}
	if err := v.read(); err != nil {
		return err
	}
	switch {
	case name == "login" && method == http.MethodGet: // another login, or a one-time code in the fragment
		v.showLogin(http.StatusOK, "")
		return nil
	case name == "login" && method == http.MethodPost:
		return v.logIn()
	case name == "live" && method == http.MethodGet:
		return v.live()
	case name == "logout" && method == http.MethodPost:
		return v.logOut()
	case name == "do" && method == http.MethodPost:
		return v.do()
	}
	s := screenAt(name)
	if s == nil || method != http.MethodGet && (name != "confirm" || method != http.MethodPost) {
		return errNoPage
	}
	if method == http.MethodPost {
		if err := v.checkCSRF(); err != nil {
			return err
		}
	}
	if err := v.enter(); err != nil {
		return err
	}
	p := &page{screen: s, title: s.title}
	if err := s.show(v, p); err != nil {
		return err
	}
	v.render(http.StatusOK, p)
	return nil
}

// read reads the parameters of a request.
func (v *view) read() error {
	if err := v.request.ParseForm(); err != nil {
		return invalid("form", "could not be read")
	}
	v.values = v.request.Form
	return nil
}

// enter makes the caller from the session's token, in the tenant that the page names.
func (v *view) enter() error {
	v.caller = v.handler.broker.Caller(v.session.token, v.origin()).Existing()
	if err := v.caller.Valid(v.ctx()); err != nil {
		if refused(err) {
			v.handler.sessions.end(v.session)
		}
		return err
	}
	tenant := v.get("tenant")
	if tenant == "" || tenant == v.caller.Tenant() {
		return nil
	}
	caller, err := v.caller.InTenant(v.ctx(), tenant)
	if err != nil {
		return err
	}
	v.caller, v.tenant = caller, tenant
	return nil
}

// serveStranger answers a request without a session: the login, and a way to it.
func (v *view) serveStranger(name, method string) error {
	if err := v.handler.broker.Stranger(v.ctx(), broker.ClientAt(v.request.RemoteAddr)); err != nil {
		return err
	}
	if err := v.handler.options.Hosts.CheckLocal(v.request); err != nil {
		return err
	}
	if err := v.read(); err != nil {
		return err
	}
	switch {
	case name == "login" && method == http.MethodGet:
		v.showLogin(http.StatusOK, "")
		return nil
	case name == "login" && method == http.MethodPost:
		return v.logIn()
	case name == "live":
		return &driver.Error{Code: driver.ErrUnauthenticated, Op: "read", Detail: "the session has ended"}
	case method == http.MethodGet && screenAt(name) != nil:
		target := name
		if query := v.request.URL.RawQuery; query != "" {
			target += "?" + query
		}
		v.redirect(link("login", "next", target))
		return nil
	case method == http.MethodPost:
		v.redirect("login")
		return nil
	}
	return errNoPage
}

// redirect sends the browser to another page of the console.
func (v *view) redirect(to string) {
	if to == "" {
		to = "./"
	}
	v.writer.Header().Set("Location", to) // relative: http.Redirect would need the prefix
	v.writer.WriteHeader(http.StatusSeeOther)
}

// nextPage returns a page of the console that a parameter names, or the overview: never an
// address elsewhere.
func nextPage(next string) string {
	parsed, err := url.Parse(next)
	if err != nil || parsed.Scheme != "" || parsed.Host != "" || parsed.Opaque != "" || parsed.User != nil || screenAt(parsed.Path) == nil {
		return "./"
	}
	if parsed.RawQuery == "" {
		return "./" + parsed.Path
	}
	return "./" + parsed.Path + "?" + parsed.Query().Encode()
}

// link returns the relative reference of a page with parameters; empty ones are left out.
func link(page string, parameters ...string) string {
	values := make(url.Values)
	for i := 0; i+1 < len(parameters); i += 2 {
		if parameters[i+1] != "" {
			values.Set(parameters[i], parameters[i+1])
		}
	}
	if page == "" {
		page = "./"
	}
	if len(values) == 0 {
		return page
	}
	return page + "?" + values.Encode()
}

// may reports whether the token allows an operation on a queue; an empty name means the
// daemon as a whole.
func (v *view) may(operation capability.Operation, queue string) bool {
	return v.caller.Allows(v.ctx(), operation, queue)
}

// mayChange is may for changes, which need a session that is not read-only. An operator
// only reads the queues of tenants.
func (v *view) mayChange(operation capability.Operation, queue string) bool {
	return !v.session.readOnly && v.tenant == "" && v.may(operation, queue)
}

// mayMeasure reports whether the token may see the figures of the daemon.
func (v *view) mayMeasure() bool {
	return v.caller.Tenant() == "" && v.may(capability.OpStats, "")
}

// fail answers with an error page.
func (v *view) fail(err error) {
	e := wireerr.Of(err)
	row := e.Row()
	if row.Retry {
		v.writer.Header().Set("Retry-After", strconv.Itoa(e.RetrySeconds()))
	}
	if row.HTTP >= http.StatusInternalServerError {
		v.handler.log.LogAttrs(v.ctx(), slog.LevelWarn, "console.failed",
			slog.String("page", path.Base(v.request.URL.Path)), slog.String("corr_id", v.corr), slog.String("error", e.Message()))
	}
	if v.session == nil || v.session.ended.Load() {
		v.showLogin(row.HTTP, e.Message())
		return
	}
	p := &page{screen: &screen{}, title: "Not possible"}
	p.problem(row.HTTP, e.Message(), row.Retry)
	v.render(row.HTTP, p)
}
