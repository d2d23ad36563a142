package monitoring_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/mailboxmq/mailbox/internal/testing/proctest"
)

func TestEveryAlertFiresInATest(t *testing.T) {
	t.Parallel()
	fires, quiet := make(map[string]bool), make(map[string]bool)
	for _, test := range readAlertTests(t) {
		for _, expected := range test.Rules {
			if len(expected.Expected) > 0 {
				fires[expected.Alertname] = true
			} else {
				quiet[expected.Alertname] = true
			}
		}
	}
	page, err := os.ReadFile(metricsPage)
	if err != nil {
		t.Fatal(err)
	}
	for _, rule := range readAlerts(t) {
		if !strings.Contains(string(page), "`"+rule.Alert+"`") {
			t.Errorf("docs/metrics.md does not say what to do about %s", rule.Alert)
		}
		if !fires[rule.Alert] || !quiet[rule.Alert] {
			t.Errorf("alerts_test.yml: %s needs a time at which it fires and one at which it does not", rule.Alert)
		}
		if rule.Alert == "" || rule.Labels["severity"] == "" || rule.Annotations["summary"] == "" || rule.Annotations["description"] == "" {
			t.Errorf("alert %q lacks a name, a severity, a summary or a description", rule.Alert)
		}
	}
	for _, arguments := range [][]string{{"check", "rules", alertsFile}, {"test", "rules", alertTestsFile}} {
		if output, err := exec.CommandContext(t.Context(), proctest.Find(t, "promtool"), arguments...).CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v\n%s", arguments, err, output)
		}
	}
}
