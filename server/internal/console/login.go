package console

import (
	"encoding/json"
	"net/http"
	"strings"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	h "github.com/mailboxmq/mailbox/server/internal/console/markup"
	"github.com/mailboxmq/mailbox/server/internal/wireerr"
)

// showLogin answers with the login page.
func (v *view) showLogin(status int, problem string) {
	p := &page{title: "Sign in"}
	p.add(h.Section(h.Class("login panel"),
		h.H1(h.Text("Sign in")),
		h.P(h.Text("A token is the login. You see and do what it allows.")),
		h.If(problem != "", h.P(h.Class("notice bad"), h.Role("alert"), timed(problem))),
		h.Form(h.Method("post"), h.Action("login"), h.ID("login"),
			h.Input(h.Type("hidden"), h.Name("next"), h.Value(v.get("next"))),
			h.Label(h.For("token"), h.Text("Token or one-time code")),
			h.Input(h.Type("password"), h.ID("token"), h.Name("token"), h.Required(), h.AutoFocus(), h.AutoComplete("off"), h.Attr("spellcheck", "false"), h.Aria("describedby", "token-help")),
			h.P(h.ID("token-help"), h.Class("quiet"), h.Text("The token stays in the daemon: this browser gets a cookie for 8 hours at most. "),
				h.Code(h.Text("mailbox console")), h.Text(" prints an address with a code.")),
			h.Label(h.Class("check"), h.Input(h.Type("checkbox"), h.Name("read_only"), h.Value("yes")), h.Text("Read only: nothing can be changed in this session")),
			h.Button(h.Class("primary"), h.Type("submit"), h.Text("Sign in")),
		),
	))
	v.render(status, p)
}

// logIn is POST login: it exchanges a token or a one-time code for a session.
func (v *view) logIn() error {
	text := strings.TrimSpace(v.request.PostForm.Get("token"))
	readOnly := v.request.PostForm.Get("read_only") != ""
	token, err := v.tokenOf(text, &readOnly)
	if err == nil {
		err = v.valid(token)
	}
	if err != nil {
		e := wireerr.Of(err)
		v.session = nil
		v.showLogin(e.Row().HTTP, "Not signed in: "+e.Message())
		return nil
	}
	begun, value, err := v.handler.sessions.begin(token, readOnly)
	if err != nil {
		return err
	}
	if old := v.handler.sessions.find(v.request); old != nil {
		v.handler.sessions.end(old)
	}
	v.session = begun
	v.setCookie(value, int(sessionTTL.Seconds()))
	v.redirect(nextPage(v.request.PostForm.Get("next")))
	return nil
}

// tokenOf reads what was typed into the login. A code decides about readOnly if it was
// made for a session that is.
func (v *view) tokenOf(text string, readOnly *bool) (capability.Token, error) {
	if !strings.HasPrefix(text, codePrefix) {
		return capability.Parse(text)
	}
	token, only, ok := v.handler.sessions.redeem(text)
	if !ok {
		return token, &driver.Error{Code: driver.ErrUnauthenticated, Op: "sign in", Detail: "the code was used or is older than a minute; run mailbox console again"}
	}
	*readOnly = *readOnly || only
	return token, nil
}

// valid refuses a token that is not genuine, has expired or was revoked.
func (v *view) valid(token capability.Token) error {
	caller := v.handler.broker.Caller(token, v.origin())
	if err := caller.Genuine(v.ctx()); err != nil {
		return err
	}
	return caller.Valid(v.ctx())
}

// setCookie sets the cookie of a session. Without a path it is for the pages of this
// console, whatever their prefix is for the browser.
func (v *view) setCookie(value string, maxAge int) {
	http.SetCookie(v.writer, &http.Cookie{
		Name: cookieName, Value: value, MaxAge: maxAge, HttpOnly: true, SameSite: http.SameSiteLaxMode,
		Secure: v.request.TLS != nil || v.request.Header.Get("X-Forwarded-Proto") == "https",
	})
}

// logOut is POST logout.
func (v *view) logOut() error {
	if err := v.checkCSRF(); err != nil {
		return err
	}
	v.handler.sessions.end(v.session)
	v.setCookie("", -1)
	v.redirect("login")
	return nil
}

// makeCode is POST code, for programs: it returns a one-time code for the bearer's token.
func (v *view) makeCode() error {
	scheme, text, _ := strings.Cut(v.request.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		text = "" // which is not a token
	}
	token, err := capability.Parse(text)
	if err != nil {
		_ = v.handler.broker.Stranger(v.ctx(), v.origin().Client) // the client is refused in any case
	} else {
		err = v.valid(token)
	}
	var code string
	if err == nil {
		code, err = v.handler.sessions.offer(token, v.request.URL.Query().Get("read_only") != "")
	}
	if err != nil {
		e := wireerr.Of(err)
		v.answerJSON(e.Row().HTTP, map[string]string{"code": e.Row().Code, "kind": e.Kind, "reason": e.Reason, "op": e.Op, "field": e.Field, "detail": e.Detail, "message": e.Message()})
		return nil
	}
	v.answerJSON(http.StatusOK, map[string]string{"one_time_code": code})
	return nil
}

func (v *view) answerJSON(status int, value any) {
	v.writer.Header().Set("Content-Type", "application/json")
	v.writer.WriteHeader(status)
	_ = json.NewEncoder(v.writer).Encode(value) // the client may have gone away
}
