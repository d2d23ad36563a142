package evalloop

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"
)

// maxListed bounds the samples of each kind in a text report.
const maxListed = 20

// WriteJSON writes the results, summaries and comparisons as JSON.
func (r *Report) WriteJSON(w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(struct {
		Summary     Summary      `json:"summary"`
		Experiments []Summary    `json:"experiments"`
		Comparisons []Comparison `json:"comparisons,omitempty"`
		Results     []Result     `json:"results"`
	}{r.Summary(), r.Experiments(), r.comparisons(), r.Results})
}

// WriteText writes the report for a terminal: a line for each experiment, comparisons,
// and the failed samples.
func (r *Report) WriteText(w io.Writer) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	var text strings.Builder
	text.WriteString("experiment\tsamples\tscored\tpassed\tpass rate\tmean score\tmean latency\tp95\ttokens\n")
	for _, s := range append(r.Experiments(), r.Summary()) {
		name := s.Experiment
		if name == "" {
			name = "all"
		}
		fmt.Fprintf(&text, "%s\t%d\t%d\t%d\t%.1f%%\t%.3f\t%s\t%s\t%d\n", oneLine(name), s.Total, s.Successful, s.Passed,
			100*s.PassRate, s.MeanScore, milliseconds(s.MeanLatencyMS), milliseconds(s.P95LatencyMS), s.Usage.TotalTokens())
	}
	if _, err := io.WriteString(table, text.String()); err != nil {
		return err
	}
	if err := table.Flush(); err != nil {
		return err
	}
	text.Reset()
	for _, c := range r.comparisons() {
		c.write(&text)
	}
	list(&text, "failed", r.Failed(), func(result *Result) string { return result.Score.Reason })
	list(&text, "could not be scored", r.Errors(), func(result *Result) string { return result.Error })
	_, err := io.WriteString(w, text.String())
	return err
}

// write writes a comparison in one line, or three.
func (c *Comparison) write(text *strings.Builder) {
	fmt.Fprintf(text, "\n%s against %s: pass rate %+.1f points", oneLine(c.Candidate.Experiment), oneLine(c.Baseline.Experiment), 100*c.PassRate)
	if c.Relative != nil {
		fmt.Fprintf(text, " (%+.1f%%)", 100**c.Relative)
	}
	fmt.Fprintf(text, ", mean score %+.3f, mean latency %s%s\n", c.MeanScore, signOf(c.LatencyMS), milliseconds(math.Abs(c.LatencyMS)))
	for _, change := range []struct {
		what string
		ids  []string
	}{{"fixed", c.Fixed}, {"broken", c.Broken}, {"only in one of them", c.Unmatched}} {
		if len(change.ids) > 0 {
			fmt.Fprintf(text, "  %s: %s\n", change.what, oneLine(strings.Join(change.ids, ", ")))
		}
	}
}

// list writes up to maxListed samples.
func list(text *strings.Builder, what string, results []Result, why func(*Result) string) {
	if len(results) == 0 {
		return
	}
	fmt.Fprintf(text, "\n%d %s:\n", len(results), what)
	for i := range results {
		if i == maxListed {
			fmt.Fprintf(text, "  and %d more\n", len(results)-maxListed)
			return
		}
		fmt.Fprintf(text, "  %s (%s) %.2f %s\n", oneLine(results[i].SampleID), oneLine(results[i].Experiment), results[i].Score.Value, oneLine(why(&results[i])))
	}
}

// oneLine removes control characters, so that a model's text cannot draw on the
// terminal.
func oneLine(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return ' '
		}
		return r
	}, text)
}
