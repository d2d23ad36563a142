package monitoring_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/internal/testing/proctest"
	"github.com/mailboxmq/mailbox/server"
)

// The jobs of the scrape.
const (
	daemonJob = "mailboxd"
	workerJob = "workers"
)

// A target is what Prometheus scrapes.
type target struct{ job, address, path string }

// A prom is a Prometheus that scrapes daemons and workers.
type prom struct {
	t       *testing.T
	base    string
	process *proctest.Process
	at      time.Time // of which queries are asked; see loaded
}

func startPrometheus(t *testing.T, targets ...target) *prom {
	t.Helper()
	dir := t.TempDir()
	config := filepath.Join(dir, "prometheus.yml")
	text := "global: {scrape_interval: 3s, scrape_timeout: 3s}\nscrape_configs:\n" // a busy machine takes more than a second
	for _, target := range targets {
		text += fmt.Sprintf("  - {job_name: %s, metrics_path: %s, static_configs: [{targets: [%q]}]}\n", target.job, target.path, target.address)
	}
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	address := net.JoinHostPort("127.0.0.1", proctest.FreePort(t))
	p := &prom{t: t, base: "http://" + address}
	p.process = proctest.Start(t, exec.Command(proctest.Find(t, "prometheus"), "--config.file="+config,
		"--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address, "--log.level=warn"))
	return p
}

// A sample is one element of an answer.
type sample struct {
	Metric map[string]string
	Value  [2]any
}

// ask evaluates an expression at p.at. The error is one of the connection.
func (p *prom) ask(expr string) ([]sample, error) {
	ctx, cancel := context.WithTimeout(p.t.Context(), time.Minute)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.base+"/api/v1/query?"+url.Values{
		"query": {expr}, "time": {p.at.UTC().Format(time.RFC3339Nano)},
	}.Encode(), nil)
	if err != nil {
		p.t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	var answer struct {
		Status, Error string
		Data          struct{ Result []sample }
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return nil, err
	}
	if answer.Status != "success" {
		p.t.Errorf("%s: %s", expr, answer.Error)
	}
	return answer.Data.Result, nil
}

// data returns the samples of an expression that are numbers.
func (p *prom) data(expr string) []sample {
	p.t.Helper()
	result, err := p.ask(expr)
	if err != nil {
		p.t.Fatalf("%v\n%s", err, p.process.Stderr.String())
	}
	return slices.DeleteFunc(result, func(s sample) bool { return s.Value[1] == "NaN" })
}

// series returns the labels of every metric that a job exports, by its name.
func (p *prom) series(job string) map[string]map[string]bool {
	p.t.Helper()
	all := make(map[string]map[string]bool)
	for _, s := range p.data(fmt.Sprintf(`{job=%q, __name__=~"mailbox_.*"}`, job)) {
		name := s.Metric["__name__"]
		if all[name] == nil {
			all[name] = make(map[string]bool)
		}
		for label := range s.Metric {
			all[name][label] = true
		}
	}
	return all
}

// lastSeries counts the scrapes of the last series that a round makes in the worker, and
// in the daemon, whichever are fewer. It is 0 if the last scrape of a target failed.
const lastSeries = `clamp_max(min(count_over_time(mailbox_resolver_evicted_total[1m])),
	scalar(min(count_over_time(mailbox_sqs_requests_total[1m])))) * min(up)`

// loaded puts load on both until Prometheus has scraped every series that the load makes
// at least three times. Queries are then asked of that moment, when the last scrapes had
// succeeded: a later one may time out on a busy machine.
func (p *prom) loaded(d *daemon, w *workshop) {
	p.t.Helper()
	d.prepare()
	deadline := time.Now().Add(3 * time.Minute)
	for i := 0; time.Now().Before(deadline); i++ {
		d.round(i)
		w.round(i)
		p.at = time.Now()
		if seen, err := p.ask(lastSeries); err == nil && len(seen) > 0 {
			var n int
			if text, _ := seen[0].Value[1].(string); text != "" {
				_, _ = fmt.Sscan(text, &n)
			}
			if n >= 3 {
				return
			}
		}
	}
	p.t.Fatalf("Prometheus did not scrape\n%s", p.process.Stderr.String())
}

func TestDashboardsAndAlertsFitTheScrape(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, server.Config{})
	w := startWorkshop(t, d)
	p := startPrometheus(t, target{daemonJob, d.Address(server.Metrics), "/metrics"}, target{workerJob, strings.TrimPrefix(w.endpoint.URL, "http://"), "/"})
	p.loaded(d, w)
	exported := map[string]map[string]map[string]bool{daemonJob: p.series(daemonJob), workerJob: p.series(workerJob)}
	for job, file := range dashboards {
		checkDashboard(p, job, file, exported[job])
	}
	both := maps.Clone(exported[workerJob])
	for name, labels := range exported[daemonJob] {
		both[name] = maps.Clone(labels)
		maps.Copy(both[name], exported[workerJob][name])
	}
	checkAlerts(p, both)
	checkPage(t, both)
}

// checkDashboard checks that every query returns data of a job, and that a panel shows
// every metric that the job exports.
func checkDashboard(p *prom, job, file string, exported map[string]map[string]bool) {
	p.t.Helper()
	shown := make(map[string]bool)
	for _, q := range dashboardQueries(p.t, file) {
		for _, name := range metricNames.FindAllString(q.expr, -1) {
			shown[name] = true
		}
		expr := strings.NewReplacer("$__rate_interval", "30s", "$job", job, "$queue", ".*", "$loop", ".*").Replace(q.expr)
		if len(p.data(expr)) == 0 {
			p.t.Errorf("%s: %s returns no data: %s", file, q.where, expr)
		}
		checkGrouping(p.t, file+": "+q.where, q.expr, exported)
	}
	for name := range exported {
		base := strings.TrimSuffix(strings.TrimSuffix(name, "_count"), "_sum")
		if !shown[name] && !shown[base+"_bucket"] {
			p.t.Errorf("%s: no panel shows %s", file, name)
		}
	}
}

var grouping = regexp.MustCompile(`\b(?:by|on) \(([^)]*)\)`)

// checkGrouping checks that a metric of an expression has each label that it groups by.
func checkGrouping(t *testing.T, where, expr string, exported map[string]map[string]bool) {
	t.Helper()
	has := map[string]bool{"job": true, "instance": true}
	for _, name := range metricNames.FindAllString(expr, -1) {
		maps.Copy(has, exported[name])
	}
	for _, found := range grouping.FindAllStringSubmatch(expr, -1) {
		for label := range strings.SplitSeq(found[1], ",") {
			if label = strings.TrimSpace(label); !has[label] {
				t.Errorf("%s: no metric of %q has the label %s", where, expr, label)
			}
		}
	}
}

// checkAlerts checks that alerts can be evaluated, that what they select is there, that a
// stuck handler fires, and that their tests use series as they are exported.
func checkAlerts(p *prom, exported map[string]map[string]bool) {
	p.t.Helper()
	for _, rule := range readAlerts(p.t) {
		checkGrouping(p.t, "alert "+rule.Alert, rule.Expr, exported)
		firing := len(p.data(rule.Expr)) > 0 // fails if it cannot be evaluated
		if rule.Alert == "MailboxHandlerStuck" && !firing {
			p.t.Errorf("alert %s does not fire after a handler was stuck", rule.Alert)
		}
		selected := selectors(rule.Expr)
		if len(selected) == 0 {
			p.t.Errorf("alert %s asks for none of our metrics", rule.Alert)
		}
		for _, selector := range selected {
			if len(p.data(selector)) == 0 {
				p.t.Errorf("alert %s: there is no %s", rule.Alert, selector)
			}
		}
	}
	label := regexp.MustCompile(`([a-z_]+)="`)
	for _, test := range readAlertTests(p.t) {
		for _, input := range test.InputSeries {
			name, labels, _ := strings.Cut(input.Series, "{")
			if name == "up" {
				continue
			}
			for _, found := range label.FindAllStringSubmatch(labels, -1) {
				if !exported[name][found[1]] {
					p.t.Errorf("test of %s: %s with label %s is not exported", test.Name, name, found[1])
				}
			}
		}
	}
}

// checkPage checks that docs/metrics.md lists what is exported and nothing else.
func checkPage(t *testing.T, exported map[string]map[string]bool) {
	t.Helper()
	page := documented(t)
	listed := make(map[string]bool)
	for name := range exported {
		base := name
		if _, isHistogram := exported[strings.TrimSuffix(name, "_sum")+"_bucket"]; isHistogram {
			base = strings.TrimSuffix(name, "_sum")
		}
		for _, suffix := range []string{"_bucket", "_count"} {
			if trimmed := strings.TrimSuffix(name, suffix); exported[trimmed+"_bucket"] != nil {
				base = trimmed
			}
		}
		listed[base] = true
		if !page[base] {
			t.Errorf("docs/metrics.md does not list %s", base)
		}
	}
	for name := range page {
		if !listed[name] {
			t.Errorf("docs/metrics.md lists %s, which is not exported", name)
		}
	}
}
