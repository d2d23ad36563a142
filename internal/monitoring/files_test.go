package monitoring_test

import (
	"bytes"
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

const (
	alertsFile     = "../../deploy/prometheus/alerts.yml"
	alertTestsFile = "../../deploy/prometheus/alerts_test.yml"
	metricsPage    = "../../docs/metrics.md"
)

// A query is an expression of a dashboard, and the place it is in.
type query struct{ where, expr string }

// dashboards are the files, by the job whose metrics they show.
var dashboards = map[string]string{
	daemonJob: "../../deploy/grafana/mailboxd.json",
	workerJob: "../../deploy/grafana/mailbox.json",
}

// dashboardQueries returns the expressions of the panels and the variables of a
// dashboard, and checks that its panels are whole.
func dashboardQueries(t *testing.T, file string) []query {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct {
			ID          int
			Type, Title string
			GridPos     struct{ X, W int }
			Targets     []struct{ Expr, LegendFormat string }
		}
		Templating struct {
			List []struct{ Name, Type, Definition string }
		}
	}
	if err := json.Unmarshal(content, &dashboard); err != nil {
		t.Fatal(err)
	}
	var queries []query
	ids := make(map[int]bool)
	for _, p := range dashboard.Panels {
		if ids[p.ID] || p.Title == "" || p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("%s: panel %d, %q, repeats an id, lacks a title or exceeds the grid", file, p.ID, p.Title)
		}
		ids[p.ID] = true
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("%s: panel %q has no query", file, p.Title)
		}
		for _, target := range p.Targets {
			queries = append(queries, query{"panel " + p.Title, target.Expr})
		}
	}
	values := regexp.MustCompile(`^label_values\((.*), ([a-z_]+)\)$`)
	for _, variable := range dashboard.Templating.List {
		if variable.Type != "query" {
			continue
		}
		found := values.FindStringSubmatch(variable.Definition)
		if found == nil {
			t.Errorf("%s: variable %s: %q is not label_values(SELECTOR, LABEL)", file, variable.Name, variable.Definition)
			continue
		}
		queries = append(queries, query{"variable " + variable.Name, "count by (" + found[2] + ") (" + found[1] + ")"})
	}
	return queries
}

// A rule is an alert of alerts.yml.
type rule struct {
	Alert       string
	Expr        string
	For         string
	Labels      map[string]string
	Annotations map[string]string
}

func readYAML(t *testing.T, file string, into any) {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	decoder := yaml.NewDecoder(bytes.NewReader(content))
	decoder.KnownFields(true)
	if err := decoder.Decode(into); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

func readAlerts(t *testing.T) []rule {
	t.Helper()
	var file struct {
		Groups []struct {
			Name  string
			Rules []rule
		}
	}
	readYAML(t, alertsFile, &file)
	var rules []rule
	for _, group := range file.Groups {
		rules = append(rules, group.Rules...)
	}
	if len(rules) == 0 {
		t.Fatal("there are no alerts")
	}
	return rules
}

// An alertTest is a test of promtool in alerts_test.yml.
type alertTest struct {
	Name        string
	Interval    string
	InputSeries []struct{ Series, Values string } `yaml:"input_series"`
	Rules       []struct {
		EvalTime  string `yaml:"eval_time"`
		Alertname string
		Expected  []map[string]map[string]string `yaml:"exp_alerts"`
	} `yaml:"alert_rule_test"`
}

func readAlertTests(t *testing.T) []alertTest {
	t.Helper()
	var file struct {
		RuleFiles []string `yaml:"rule_files"`
		Every     string   `yaml:"evaluation_interval"`
		Tests     []alertTest
	}
	readYAML(t, alertTestsFile, &file)
	return file.Tests
}

// metricNames matches the names of our metrics in a text.
var metricNames = regexp.MustCompile(`\bmailbox_[a-z_]*[a-z]\b`)

// selectors returns the selectors of our metrics in an expression.
func selectors(expr string) []string {
	return regexp.MustCompile(`\bmailbox_[a-z_]*[a-z]\b(\{[^}]*\})?`).FindAllString(expr, -1)
}

// documented returns the metrics in the first columns of the tables of docs/metrics.md
// that list what is exported.
func documented(t *testing.T) map[string]bool {
	t.Helper()
	content, err := os.ReadFile(metricsPage)
	if err != nil {
		t.Fatal(err)
	}
	text, _, found := strings.Cut(string(content), "\n## Names before this version")
	if !found {
		t.Fatal("docs/metrics.md has no heading for old names")
	}
	names := make(map[string]bool)
	for line := range strings.Lines(text) {
		if cells := strings.Split(line, "|"); len(cells) > 3 {
			for _, name := range metricNames.FindAllString(cells[1], -1) {
				names[name] = true
			}
		}
	}
	return names
}
