package chart

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/mailboxmq/mailbox/internal/testing/golden"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
)

const (
	chart   = "../../deploy/helm/mailbox"
	goldens = "../../deploy/helm/golden"
)

// helm runs Helm, and returns what it prints.
func helm(args ...string) ([]byte, error) {
	c := exec.Command("go", append([]string{"tool", "-modfile=../../tools/helm.mod", "helm"}, args...)...)
	var stderr bytes.Buffer
	c.Stderr = &stderr
	out, err := c.Output()
	if err != nil {
		out = append(out, stderr.Bytes()...)
	}
	return out, err
}

// TestChartRendersAsBefore lints the chart and compares what it renders for each backend.
func TestChartRendersAsBefore(t *testing.T) {
	volume.OnlyAtLength(t, "building Helm takes minutes: make chart")
	for _, name := range []string{"disk", "redis", "postgres"} {
		values := filepath.Join(goldens, name+".values.yaml")
		if out, err := helm("lint", "--strict", "--values", values, chart); err != nil {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
		out, err := helm("template", "orders", chart, "--values", values)
		if err != nil {
			t.Fatalf("%s: %v\n%s", name, err, out)
		}
		golden.Match(t, filepath.Join(goldens, name+".yaml"), out)
	}
}

func TestChartRefusesIncompleteValues(t *testing.T) {
	volume.OnlyAtLength(t, "building Helm takes minutes: make chart")
	for values, want := range map[string]string{
		"backend=disk": "tlsSecret: required, or set plaintext to true", "backend=sqs,plaintext=true": `backend: invalid value "sqs"`,
		"backend=redis,plaintext=true": "backendSecret: required", "backend=postgres,plaintext=true,backendSecret=a": "keySecret: required",
	} {
		if out, err := helm("template", "orders", chart, "--set", values); err == nil || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v\n%s", values, err, out)
		}
	}
}

// TestChartSetsSettingsThatExist compares the variables of the chart with the reference of
// settings, and its version with that of the newest release.
func TestChartSetsSettingsThatExist(t *testing.T) {
	read := func(name string) string {
		t.Helper()
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	reference, variables := read("../../docs/configuration.md"), make(map[string]bool)
	for _, name := range []string{"disk", "redis", "postgres"} {
		for _, variable := range regexp.MustCompile(`MAILBOXD_[A-Z_]+`).FindAllString(read(filepath.Join(goldens, name+".yaml")), -1) {
			variables[variable] = true
		}
	}
	for variable := range variables {
		if !strings.Contains(reference, "`"+variable+"`") {
			t.Errorf("docs/configuration.md does not have %s", variable)
		}
	}
	if len(variables) < 8 {
		t.Errorf("the chart sets only %v", variables)
	}
	release := regexp.MustCompile(`(?m)^## \[(\d+\.\d+\.\d+)\] - `).FindStringSubmatch(read("../../CHANGELOG.md"))
	if release == nil || !strings.Contains(read(filepath.Join(chart, "Chart.yaml")), "\nappVersion: "+release[1]+"\n") {
		t.Errorf("Chart.yaml is not of the newest release, %v", release)
	}
}
