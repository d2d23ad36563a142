package evalloop

import (
	"cmp"
	"fmt"
	"html"
	"io"
	"math"
	"slices"
	"strings"
)

// The page is built by hand: a template engine would be most of the size that this
// package adds to a program.
const (
	pageHead = `<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>Evaluation report</title><style>
:root { color-scheme: light dark; --ink: #1c2430; --paper: #fff; --line: #d5dbe3; --bar: #3b6fb6; --good: #2e7d4f; --bad: #b3382c; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e9f0; --paper: #12161c; --line: #323b47; --bar: #6fa0e0; --good: #62b985; --bad: #e5796c; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 1180px; margin: 2rem auto; padding: 0 1rem; }
.wide { overflow-x: auto; margin: 1rem 0; } table { border-collapse: collapse; width: 100%; } th, td { text-align: left; padding: .35rem .6rem; border-bottom: 1px solid var(--line); vertical-align: top; }
td.n, th.n { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; } td.reason { overflow-wrap: anywhere; min-width: 14rem; max-width: 36rem; }
figure { display: inline-block; margin: 1rem 1rem 1rem 0; max-width: 100%; vertical-align: top; } figcaption { font-weight: 600; margin-bottom: .5rem; } svg { max-width: 100%; height: auto; }
svg rect { fill: var(--bar); } svg line { stroke: var(--line); } svg text { fill: var(--ink); font-size: 12px; } svg text.label { text-anchor: end; } svg text.count { text-anchor: middle; }
.passed { color: var(--good); } .failed { color: var(--bad); }
</style></head><body>
<h1>Evaluation report</h1>
`
	pageFoot = "</body></html>\n"
)

// WriteHTML writes the report as one self-contained page: numbers, charts, comparisons
// and every sample, errors and failures first.
func (r *Report) WriteHTML(w io.Writer) error {
	var page strings.Builder
	page.WriteString(pageHead)
	experiments := r.Experiments()
	writeSummaries(&page, append(slices.Clone(experiments), r.Summary()))
	page.WriteString(r.charts(experiments))
	writeComparisons(&page, r.comparisons())
	writeResults(&page, r.Results)
	page.WriteString(pageFoot)
	_, err := io.WriteString(w, page.String())
	return err
}

func writeSummaries(page *strings.Builder, summaries []Summary) {
	page.WriteString(`<div class="wide"><table><tr><th>experiment</th>`)
	for _, title := range []string{"samples", "scored", "passed", "pass rate", "mean score", "mean latency", "p95 latency", "tokens"} {
		fmt.Fprintf(page, `<th class="n">%s</th>`, title)
	}
	page.WriteString("</tr>\n")
	for _, s := range summaries {
		name := s.Experiment
		if name == "" {
			name = "all"
		}
		fmt.Fprintf(page, `<tr><td>%s</td><td class="n">%d</td><td class="n">%d</td><td class="n">%d</td><td class="n">%.1f %%</td><td class="n">%.3f</td><td class="n">%s</td><td class="n">%s</td><td class="n">%d</td></tr>`+"\n",
			html.EscapeString(name), s.Total, s.Successful, s.Passed, 100*s.PassRate, s.MeanScore, milliseconds(s.MeanLatencyMS), milliseconds(s.P95LatencyMS), s.Usage.TotalTokens())
	}
	page.WriteString("</table></div>\n")
}

// charts draws the charts.
func (r *Report) charts(experiments []Summary) string {
	var rates, scores []bar
	for _, s := range experiments {
		rates = append(rates, bar{s.Experiment, s.PassRate, fmt.Sprintf("%.1f %%", 100*s.PassRate)})
		scores = append(scores, bar{s.Experiment, s.MeanScore, fmt.Sprintf("%.3f", s.MeanScore)})
	}
	var values, latencies []float64
	for i := range r.Results {
		latencies = append(latencies, r.Results[i].LatencyMS)
		if r.Results[i].Success() {
			values = append(values, r.Results[i].Score.Value)
		}
	}
	slowest := 1.0
	if len(latencies) > 0 {
		slowest = max(slowest, slices.Max(latencies))
	}
	return barChart("Pass rate", rates) + barChart("Mean score", scores) +
		histogram("Scores", "", values, 0, 1) + histogram("Latency", " ms", latencies, 0, slowest)
}

func writeComparisons(page *strings.Builder, comparisons []Comparison) {
	for _, c := range comparisons {
		relative := ""
		if c.Relative != nil {
			relative = fmt.Sprintf(" (%+.1f %%)", 100**c.Relative)
		}
		fmt.Fprintf(page, "<h2>%s against %s</h2><p>Pass rate %+.1f points%s, mean score %+.3f, mean latency %s%s.</p>\n",
			html.EscapeString(c.Candidate.Experiment), html.EscapeString(c.Baseline.Experiment), 100*c.PassRate, relative, c.MeanScore, signOf(c.LatencyMS), milliseconds(math.Abs(c.LatencyMS)))
		for _, change := range []struct {
			title, class string
			ids          []string
		}{{"Fixed", "passed", c.Fixed}, {"Broken", "failed", c.Broken}, {"Only in one of them", "unmatched", c.Unmatched}} {
			if len(change.ids) > 0 {
				fmt.Fprintf(page, `<p class="%s">%s: %s</p>`+"\n", change.class, change.title, html.EscapeString(strings.Join(change.ids, ", ")))
			}
		}
	}
}

func writeResults(page *strings.Builder, results []Result) {
	page.WriteString("<h2>Samples</h2>\n<div class=\"wide\"><table><tr><th>sample</th><th>experiment</th><th>outcome</th><th class=\"n\">score</th><th class=\"n\">latency</th><th>reason</th></tr>\n")
	sorted := slices.Clone(results)
	slices.SortStableFunc(sorted, func(a, b Result) int {
		// The experiments of a sample are adjacent, so that they can be compared.
		return cmp.Or(badness(&b)-badness(&a), cmp.Compare(a.SampleID, b.SampleID), cmp.Compare(a.Experiment, b.Experiment))
	})
	for i := range sorted {
		result := &sorted[i]
		class, outcome, reason := "passed", "passed", result.Score.Reason
		score := fmt.Sprintf("%.2f", result.Score.Value)
		switch {
		case !result.Success():
			class, outcome, reason, score = "failed", "error", result.Error, "–" // not scored
		case !result.Score.Passed:
			class, outcome = "failed", "failed"
		}
		fmt.Fprintf(page, `<tr><td>%s</td><td>%s</td><td class="%s">%s</td><td class="n">%s</td><td class="n">%s</td><td class="reason">%s</td></tr>`+"\n",
			html.EscapeString(result.SampleID), html.EscapeString(result.Experiment), class, outcome, score, milliseconds(result.LatencyMS), html.EscapeString(reason))
	}
	page.WriteString("</table></div>\n")
}

// milliseconds formats a latency with a useful number of digits: the same column has
// tools that take microseconds and models that take a minute.
func milliseconds(ms float64) string {
	if ms < 10 {
		return fmt.Sprintf("%.1f ms", ms)
	}
	return fmt.Sprintf("%.0f ms", ms)
}

// signOf returns the sign of a difference as milliseconds formats it, without -0.0.
func signOf(ms float64) string {
	if ms <= -0.05 {
		return "-"
	}
	return "+"
}

// badness orders errors before failures, and failures before passes.
func badness(r *Result) int {
	switch {
	case !r.Success():
		return 2
	case !r.Score.Passed:
		return 1
	}
	return 0
}
