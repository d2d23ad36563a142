package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestEvalMeasuresTheStandIn(t *testing.T) {
	var progress strings.Builder
	report, err := evaluate(t.Context(), "", "small", &progress)
	if err != nil {
		t.Fatal(err)
	}
	summary := report.Summary()
	if summary.Total != 14 || summary.Successful != 12 || summary.Passed != 10 {
		t.Errorf("the summary is %+v", summary)
	}
	page := filepath.Join(t.TempDir(), "report.html")
	var text strings.Builder
	if err := write(report, &text, page); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"baseline", "brief against baseline", "capital-3", "2 could not be scored", "limits the rate (429 Too Many Requests): slow down"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the report does not say %q: %s", want, text.String())
		}
	}
	if html, err := os.ReadFile(page); err != nil || !strings.Contains(string(html), "<svg") {
		t.Errorf("the page is %s, %v", html, err)
	}
	if !strings.HasSuffix(strings.TrimSpace(progress.String()), "s") || !strings.Contains(progress.String(), "14/14 100%") {
		t.Errorf("the progress was %q", progress.String())
	}
}
