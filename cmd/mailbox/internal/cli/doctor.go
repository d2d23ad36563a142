package cli

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/internal/checkup"
)

// The results of a check.
const (
	statusOK   = checkup.OK
	statusWarn = checkup.Warning
	statusFail = checkup.Failed
	statusSkip = checkup.Skipped
)

// A finding is the result of one check, also in JSON.
type finding = checkup.Finding

// doctorView is the result of mailbox doctor in JSON.
type doctorView struct {
	OK       bool      `json:"ok"`
	Findings []finding `json:"findings"`
}

func (s *shell) doctorCommand() *cobra.Command {
	return &cobra.Command{
		Use: "doctor", Short: "Find out what is wrong",
		Long: "Check, one after the other, the address, the daemon, its readiness and version, TLS, the clocks, the token, whether the\n" +
			"daemon accepts it, the delivery limits of queues, frames, and the disk; and say what to do. The exit code is 1 if something is wrong.",
		Args: wants(0, 0),
		RunE: s.run(func(ctx context.Context, _ []string) error {
			d := &doctor{shell: s}
			d.run(ctx)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return d.print()
		}),
	}
}

// A doctor is one run of mailbox doctor.
type doctor struct {
	shell    *shell
	findings []finding
	endpoint *endpoint
	api      *api
	token    capability.Token
	health   *page             // nil if the daemon does not answer
	notes    map[string]string // from readiness
}

func (d *doctor) add(check, status, advice, format string, args ...any) {
	d.findings = append(d.findings, finding{Check: check, Status: status, Message: fmt.Sprintf(format, args...), Advice: advice})
}

// addError adds a finding that explains an error.
func (d *doctor) addError(check string, err error) {
	f := d.shell.explain(err)
	d.add(check, statusFail, f.advice, "%s", f.sentence)
}

func (d *doctor) run(ctx context.Context) {
	var err error
	if d.endpoint, err = d.shell.endpoint(); err != nil {
		d.add("address", statusFail, "correct --addr, --oap-addr or the variables of the environment", "%s", explain(err).sentence)
		return
	}
	credential, err := d.shell.credential()
	d.token = credential.token
	d.api = newAPI(d.endpoint, d.token)
	defer d.api.close()
	d.checkDaemon(ctx)
	d.checkReady(ctx)
	d.checkTLS()
	d.checkClock()
	if err != nil {
		d.addError("token", err)
	} else {
		d.checkToken(credential.source, time.Now())
	}
	d.checkAccepted(ctx)
	d.checkLimits(ctx)
	d.checkFrames(ctx)
	d.checkDisk()
}

// checkDaemon checks whether the daemon answers.
func (d *doctor) checkDaemon(ctx context.Context) {
	began := time.Now()
	found, err := d.api.get(ctx, "/healthz", capability.Token{})
	switch {
	case err != nil:
		d.addError("daemon", err)
	case found.status != http.StatusOK:
		d.add("daemon", statusFail, "say where the daemon is with --addr", "the server at %s is not mailboxd (HTTP status %d)", d.endpoint.shown, found.status)
	default:
		d.health = found
		d.add("daemon", statusOK, "", "a daemon answers at %s, within %v", d.endpoint.shown, time.Since(began).Round(time.Millisecond))
	}
}

// checkReady checks whether the daemon is ready.
func (d *doctor) checkReady(ctx context.Context) {
	if d.health == nil {
		return
	}
	var state struct {
		Ready    bool              `json:"ready"`
		Degraded bool              `json:"degraded"`
		Version  string            `json:"version"`
		Missing  []string          `json:"missing"`
		Notes    map[string]string `json:"notes"`
	}
	found, err := d.api.get(ctx, "/readyz", d.token) // with a token the daemon reports its version
	if err == nil {
		err = json.Unmarshal(found.body, &state)
	}
	if err != nil {
		d.addError("readiness", err)
	} else {
		d.findings = append(d.findings, checkup.Readiness(state.Missing, state.Notes["profile"])...)
	}
	d.notes = state.Notes
	if state.Version != "" {
		d.add("version", statusOK, "", "the daemon is %s, this is %s", state.Version, d.shell.version().Version)
	} else {
		d.add("version", statusSkip, "", "the daemon does not report its version, this is %s", d.shell.version().Version)
	}
	d.findings = append(d.findings, checkup.Notes(state.Notes)...)
}

// expiryWarning is how long before an expiry the doctor warns.
const expiryWarning = 14 * 24 * time.Hour

func (d *doctor) checkTLS() {
	switch {
	case d.health == nil:
	case d.health.tls != nil:
		state := d.health.tls
		end := state.PeerCertificates[0].NotAfter
		status, advice := statusOK, ""
		if time.Until(end) < expiryWarning {
			status, advice = statusWarn, "renew the certificate, and send the daemon a SIGHUP"
		}
		d.add("TLS", status, advice, "%s with a certificate that is valid until %s", tls.VersionName(state.Version), stamp(&end))
	case d.endpoint.socket != "":
		d.add("TLS", statusOK, "", "a unix socket needs no TLS")
	case loopback(d.endpoint.host):
		d.add("TLS", statusOK, "", "there is no TLS, and on this machine it is not needed")
	default:
		d.add("TLS", statusWarn, "use https:// in --addr", "there is no TLS, and the network can read the token")
	}
}

// How far clocks may differ.
const (
	clockWarning = 5 * time.Second
	clockFailure = 2 * time.Minute
)

func (d *doctor) checkClock() {
	if d.health == nil {
		return
	}
	theirs, err := http.ParseTime(d.health.header.Get("Date"))
	if err != nil {
		d.add("clock", statusSkip, "", "the daemon does not report its time")
		return
	}
	skew := time.Since(theirs).Abs().Truncate(time.Second)
	const advice = "synchronize both clocks with NTP: tokens are valid at certain times"
	switch {
	case skew > clockFailure:
		d.add("clock", statusFail, advice, "the clocks of this machine and the daemon differ by %v", skew)
	case skew > clockWarning:
		d.add("clock", statusWarn, advice, "the clocks of this machine and the daemon differ by %v", skew)
	default:
		d.add("clock", statusOK, "", "the clocks of this machine and the daemon agree")
	}
}

// checkToken checks the expiry of the token.
func (d *doctor) checkToken(source string, now time.Time) {
	description := d.token.Inspect()
	advice := "mint another with mailbox cap mint"
	if d.shell.isOperatorFile(source) {
		advice = adviceOperator(source, capability.ReasonExpired)
	}
	found := checkup.Expiry("token", "the token in "+source, advice, description.ExpiresAt, now)
	if found.Status == statusOK {
		found.Message = fmt.Sprintf("the token in %s is %s, valid until %s", source, description.ID, stamp(&description.ExpiresAt))
	}
	d.findings = append(d.findings, found)
}

// checkAccepted checks whether the daemon accepts the token.
func (d *doctor) checkAccepted(ctx context.Context) {
	if d.health == nil || d.token.IsZero() {
		return
	}
	err := d.api.call(ctx, apiRequest{path: "/v1/ping"}, nil)
	if err == nil { // a ping accepts any genuine token, a list only valid ones
		for _, err = range d.api.queues(ctx) {
			break
		}
	}
	f := explain(orNil(err))
	if err != nil && f.advice == adviceUnknown { // this advice says to run mailbox doctor
		d.add("access", statusFail, "check readiness above, and the log of the daemon", "cannot be checked: %s", f.sentence)
		return
	}
	if err != nil && f.code != "forbidden" {
		d.addError("access", err)
		return
	}
	d.add("access", statusOK, "", "the daemon accepts the token and writes")
}

// checkLimits lists the queues without a delivery limit that the token allows it
// to see: there a message that kills its worker is delivered again without
// end.
func (d *doctor) checkLimits(ctx context.Context) {
	if d.health == nil || d.token.IsZero() {
		return
	}
	var unlimited []string
	for name, err := range d.api.queues(ctx) {
		if err != nil {
			d.add("limits", statusSkip, "", "the queues cannot be listed: %s", explain(err).sentence)
			return
		}
		config, err := d.api.config(ctx, name)
		if err != nil { // it was deleted meanwhile, or the token does not allow it
			continue
		}
		if limit := config.MaxAttempts; limit == nil || !checkup.LimitsDeliveries(*limit) {
			unlimited = append(unlimited, string(printable([]byte(name), 0)))
		}
	}
	d.findings = append(d.findings, checkup.Limits(unlimited))
}

// orNil returns nil for nil, which explain does not accept.
func orNil(err error) error {
	if err == nil {
		return errors.New("nothing")
	}
	return err
}

// checkFrames connects by OAP/1.
func (d *doctor) checkFrames(ctx context.Context) {
	switch {
	case d.endpoint.oap == "":
		d.add("frames", statusSkip, "", "messages are sent over HTTP; OAP/1 is faster, name its address with --oap-addr")
		return
	case d.token.IsZero() || d.health == nil:
		return
	}
	m := (&connection{endpoint: d.endpoint, credential: credential{token: d.token}, api: d.api}).queueOpener()
	defer m.close()
	err := m.checkListening(ctx)
	if err == nil {
		err = m.backend.Ping(ctx)
	}
	if err != nil {
		d.addError("frames", err)
		return
	}
	d.add("frames", statusOK, "", "OAP/1 works at %s", d.endpoint.oap)
}

// print prints the findings. Its error sets the exit code.
func (d *doctor) print() error {
	v := doctorView{OK: true, Findings: d.findings}
	for _, f := range d.findings {
		v.OK = v.OK && f.Status != statusFail
	}
	if d.shell.global.json {
		if err := d.shell.object(v); err != nil {
			return err
		}
	} else {
		for _, f := range d.findings {
			text := fmt.Sprintf("%-8s %-10s %s", f.Status, f.Check, f.Message)
			if f.Advice != "" {
				text += ": " + f.Advice
			}
			if err := d.shell.line("%s.", text); err != nil {
				return err
			}
		}
	}
	if !v.OK {
		return silentExit(exitFailed)
	}
	return nil
}
