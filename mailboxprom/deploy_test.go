package mailboxprom_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.yaml.in/yaml/v3"

	"github.com/mailboxmq/mailbox/mailboxprom"
)

// exported are the metrics that New registers, by name, and their labels.
func exported(t *testing.T) map[string][]string {
	t.Helper()
	all := make(description)
	if _, err := mailboxprom.New(t.Context(), all, nil); err != nil {
		t.Fatal(err)
	}
	return all
}

// description is a registerer that takes down what is registered.
type description map[string][]string

var described = regexp.MustCompile(`fqName: "([^"]+)".*variableLabels: \{([^}]*)\}`)

func (d description) Register(c prometheus.Collector) error {
	descriptions := make(chan *prometheus.Desc, 100)
	c.Describe(descriptions)
	close(descriptions)
	for one := range descriptions {
		found := described.FindStringSubmatch(one.String())
		labels := strings.FieldsFunc(found[2], func(r rune) bool { return r == ',' })
		d[found[1]] = labels
		if _, isHistogram := c.(*prometheus.HistogramVec); isHistogram {
			d[found[1]+"_bucket"] = append(slices.Clone(labels), "le")
			d[found[1]+"_count"], d[found[1]+"_sum"] = labels, labels
			delete(d, found[1])
		}
	}
	return nil
}

func (d description) MustRegister(...prometheus.Collector)   {}
func (d description) Unregister(c prometheus.Collector) bool { return c != nil }

var (
	metricName = regexp.MustCompile(`\bmailbox_[a-z_]+`)
	grouping   = regexp.MustCompile(`\b(?:by|on) \(([^)]*)\)`)
	selector   = regexp.MustCompile(`(mailbox_[a-z_]+)\{([^}]*)\}`)
	matcher    = regexp.MustCompile(`([a-z_]+)\s*(?:=~|!~|!=|=)\s*"`)
)

// checkQuery checks that every metric of a query is exported, and that it has the labels
// that the query wants of it. It returns the metrics.
func checkQuery(t *testing.T, where, query string, all map[string][]string) []string {
	t.Helper()
	names := metricName.FindAllString(query, -1)
	if len(names) == 0 {
		t.Errorf("%s: %q asks for none of our metrics", where, query)
	}
	var labels []string
	for _, name := range names {
		if _, ok := all[name]; !ok {
			t.Errorf("%s: %s is not exported", where, name)
		}
		labels = append(labels, all[name]...)
	}
	for _, found := range selector.FindAllStringSubmatch(query, -1) {
		for _, label := range matcher.FindAllStringSubmatch(found[2], -1) {
			if !slices.Contains(all[found[1]], label[1]) {
				t.Errorf("%s: %s has no label %s", where, found[1], label[1])
			}
		}
	}
	for _, found := range grouping.FindAllStringSubmatch(query, -1) {
		for label := range strings.SplitSeq(found[1], ",") {
			if label = strings.TrimSpace(label); !slices.Contains(labels, label) {
				t.Errorf("%s: no metric of %q has the label %s", where, query, label)
			}
		}
	}
	return names
}

func TestDashboardShowsWhatIsExported(t *testing.T) {
	content, err := os.ReadFile("../deploy/grafana/mailbox.json")
	if err != nil {
		t.Fatal(err)
	}
	type panel struct {
		ID      int
		Type    string
		Title   string
		GridPos struct{ H, W, X, Y int }
		Targets []struct{ Expr, LegendFormat string }
	}
	var dashboard struct {
		Title      string
		Panels     []panel
		Templating struct {
			List []struct {
				Name       string
				Definition string
			}
		}
	}
	if err := json.Unmarshal(content, &dashboard); err != nil {
		t.Fatal(err)
	}
	all, shown, ids := exported(t), make(map[string]bool), make(map[int]bool)
	for _, p := range dashboard.Panels {
		if ids[p.ID] || p.Title == "" || p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("panel %d, %q, has the id of another, no title, or no room", p.ID, p.Title)
		}
		ids[p.ID] = true
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("panel %q shows nothing", p.Title)
		}
		for _, target := range p.Targets {
			for _, name := range checkQuery(t, p.Title, target.Expr, all) {
				shown[name] = true
			}
		}
	}
	for _, variable := range dashboard.Templating.List {
		if variable.Definition != "" {
			checkQuery(t, "variable "+variable.Name, variable.Definition, all)
		}
	}
	// And the other way round: what is measured can be seen.
	for _, name := range slices.Sorted(maps.Keys(all)) {
		base := strings.TrimSuffix(strings.TrimSuffix(name, "_count"), "_sum")
		if !shown[name] && !shown[base+"_bucket"] {
			t.Errorf("no panel shows %s", name)
		}
	}
}

func TestAlertsAskForWhatIsExported(t *testing.T) {
	content, err := os.ReadFile("../deploy/prometheus/alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Groups []struct {
			Name  string
			Rules []struct {
				Alert       string
				Expr        string
				For         string
				Labels      map[string]string
				Annotations map[string]string
			}
		}
	}
	decoder := yaml.NewDecoder(bytes.NewReader(content))
	decoder.KnownFields(true)
	if err := decoder.Decode(&file); err != nil {
		t.Fatal(err)
	}
	all, alerts := exported(t), 0
	for _, group := range file.Groups {
		for _, rule := range group.Rules {
			alerts++
			checkQuery(t, rule.Alert, rule.Expr, all)
			if rule.Alert == "" || rule.Labels["severity"] == "" || rule.Annotations["summary"] == "" || rule.Annotations["description"] == "" {
				t.Errorf("alert %q lacks a name, a severity, a summary or a description", rule.Alert)
			}
		}
	}
	if alerts == 0 {
		t.Error("there are no alerts")
	}
}

func TestQueriesForWhatIsNotThereAreNoticed(t *testing.T) {
	all := exported(t)
	for _, query := range []string{
		`up`,
		`mailbox_enqueue_total`,
		`mailbox_enqueued_total{loop="x"}`,
		`sum by (reason) (rate(mailbox_enqueued_total[5m]))`,
		`mailbox_wait_seconds`,
	} {
		inner := &testing.T{}
		checkQuery(inner, "test", query, all)
		if !inner.Failed() {
			t.Errorf("nothing is wrong with %s", query)
		}
	}
}
