package evalloop_test

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/evalloop"
	"github.com/mailboxmq/mailbox/mainloop"
)

// report has two experiments, with one sample that is better in the second, one
// that is worse, and one that could not be scored.
func report() *evalloop.Report {
	result := func(sample, experiment string, value, latency float64, failure string) evalloop.Result {
		r := evalloop.Result{
			RequestID: sample + experiment, SampleID: sample, Experiment: experiment, LatencyMS: latency, Error: failure,
			Score: evalloop.Score{Value: value, Passed: value >= 0.75}, Usage: mainloop.Usage{InputTokens: 10, OutputTokens: 1},
		}
		if value < 0.75 && failure == "" {
			r.Score.Reason = "got <b>\x1b[31mmud</b>"
		}
		return r
	}
	return &evalloop.Report{Results: []evalloop.Result{
		result("a", "baseline", 1, 100, ""), result("b", "baseline", 0.5, 200, ""), result("c", "baseline", 0, 600, "no milk"),
		result("a", "v2", 0, 100, ""), result("b", "v2", 1, 100, ""), result("c", "v2", 1, 100, ""), result("d", "v2", 1, 100, ""),
	}}
}

func TestReportsAddUp(t *testing.T) {
	r := report()
	want := evalloop.Summary{
		Experiment: "baseline", Total: 3, Successful: 2, Passed: 1, PassRate: 0.5, MeanScore: 0.75,
		MeanLatencyMS: 300, P95LatencyMS: 600, Usage: mainloop.Usage{InputTokens: 30, OutputTokens: 3},
	}
	if got := r.Experiments(); len(got) != 2 || got[0] != want {
		t.Errorf("the experiments are %+v, want %+v", got, want)
	}
	if got := r.Summary(); got.Total != 7 || got.Successful != 6 || got.Passed != 4 {
		t.Errorf("the summary is %+v", got)
	}
	if len(r.Failed()) != 2 || len(r.Errors()) != 1 {
		t.Errorf("failed are %+v, errors %+v", r.Failed(), r.Errors())
	}
	c, ok := r.Compare("baseline", "v2")
	if !ok || c.PassRate != 0.25 || *c.Relative != 0.5 || c.MeanScore != 0 || c.LatencyMS != -200 ||
		strings.Join(c.Fixed, " ") != "b c" || strings.Join(c.Broken, " ") != "a" {
		t.Errorf("the comparison is %+v", c)
	}
	if strings.Join(c.Unmatched, " ") != "d" {
		t.Errorf("samples that only one of them has are %v", c.Unmatched)
	}
	if back, _ := r.Compare("v2", "baseline"); strings.Join(back.Unmatched, " ") != "d" {
		t.Errorf("samples that only one of them has are %v", back.Unmatched)
	}
	if _, ok := r.Compare("baseline", "v3"); ok {
		t.Error("an experiment that was not run was compared")
	}
	none := &evalloop.Report{Results: []evalloop.Result{{Experiment: "x"}, {Experiment: "y"}}}
	if c, ok := none.Compare("x", "y"); !ok || c.Relative != nil {
		t.Errorf("against nothing the comparison is %+v", c)
	}
	if got := (&evalloop.Report{}).Summary(); got != (evalloop.Summary{}) {
		t.Errorf("nothing is %+v", got)
	}
}

func TestReportAsText(t *testing.T) {
	var text strings.Builder
	if err := report().WriteText(&text); err != nil {
		t.Fatal(err)
	}
	const want = `experiment  samples  scored  passed  pass rate  mean score  mean latency  p95     tokens
baseline    3        2       1       50.0%      0.750       300 ms        600 ms  33
v2          4        4       3       75.0%      0.750       100 ms        100 ms  44
all         7        6       4       66.7%      0.750       186 ms        600 ms  77

v2 against baseline: pass rate +25.0 points (+50.0%), mean score +0.000, mean latency -200 ms
  fixed: b, c
  broken: a
  only in one of them: d

2 failed:
  b (baseline) 0.50 got <b> [31mmud</b>
  a (v2) 0.00 got <b> [31mmud</b>

1 could not be scored:
  c (baseline) 0.00 no milk
`
	if text.String() != want {
		t.Errorf("the text is\n%s, want\n%s", text.String(), want)
	}
	many := &evalloop.Report{Results: make([]evalloop.Result, 100)}
	text.Reset()
	if err := many.WriteText(&text); err != nil || !strings.Contains(text.String(), "and 80 more") || strings.Count(text.String(), "\n") > 30 {
		t.Errorf("%v: %s", err, text.String())
	}
}

func TestReportAsJSON(t *testing.T) {
	var text bytes.Buffer
	if err := report().WriteJSON(&text); err != nil {
		t.Fatal(err)
	}
	var back struct {
		Summary     evalloop.Summary      `json:"summary"`
		Experiments []evalloop.Summary    `json:"experiments"`
		Comparisons []evalloop.Comparison `json:"comparisons"`
		Results     []evalloop.Result     `json:"results"`
	}
	if err := json.Unmarshal(text.Bytes(), &back); err != nil {
		t.Fatal(err)
	}
	if back.Summary != report().Summary() || len(back.Experiments) != 2 || len(back.Comparisons) != 1 || len(back.Results) != 7 ||
		back.Comparisons[0].Candidate.Experiment != "v2" {
		t.Errorf("the JSON is %s", text.String())
	}
}

// The page is well formed, self-contained, and escapes texts of models.
func TestReportAsPage(t *testing.T) {
	var page strings.Builder
	r := report()
	r.Results[0].SampleID = `<script>alert("a")</script>`
	if err := r.WriteHTML(&page); err != nil {
		t.Fatal(err)
	}
	text := page.String()
	for _, foreign := range []string{"<script", "http://", "https://", "src=", "@import", "url("} {
		if strings.Contains(text, foreign) {
			t.Errorf("the page has %s in it", foreign)
		}
	}
	if strings.Count(text, "<svg") != 4 || strings.Count(text, "<tr>") != 1+3+1+7 || !strings.Contains(text, "&lt;script&gt;") {
		t.Errorf("the page is %s", text)
	}
	if first := strings.Index(text, "no milk"); first < 0 || first > strings.Index(text, "got &lt;b&gt;") {
		t.Error("errors do not come first")
	}
	body := text[strings.Index(text, "<body>"):strings.Index(text, "</html>")]
	body = strings.ReplaceAll(body, "\x1b", "") // which XML does not know
	decoder := xml.NewDecoder(strings.NewReader(body))
	for {
		if _, err := decoder.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("the page is not well formed: %v", err)
		}
	}
	page.Reset()
	if err := (&evalloop.Report{}).WriteHTML(&page); err != nil || !strings.Contains(page.String(), "</html>") {
		t.Errorf("an empty report is %v: %s", err, page.String())
	}
}

func TestReportFormatsSmallNumbers(t *testing.T) {
	r := &evalloop.Report{Results: []evalloop.Result{
		{SampleID: "b", Experiment: "baseline", LatencyMS: 0.44, Score: evalloop.Score{Value: 1, Passed: true}},
		{SampleID: "b", Experiment: "brief", LatencyMS: 0.42, Score: evalloop.Score{Value: 1, Passed: true}},
		{SampleID: "a", Experiment: "baseline", LatencyMS: 12_345.6, Error: "no milk"},
		{SampleID: "a", Experiment: "brief", LatencyMS: 12_345.6, Error: "no milk"},
	}}
	var page, text strings.Builder
	if err := errors.Join(r.WriteHTML(&page), r.WriteText(&text)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"0.4 ms", "12346 ms", `<td class="n">–</td>`, "mean latency +0.0 ms"} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("the page does not say %q: %s", want, page.String())
		}
	}
	if !strings.Contains(text.String(), "mean latency +0.0 ms") {
		t.Errorf("the text is %s", text.String())
	}
}

// failing is a writer that fails.
type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errMilk }

func TestReportReturnsWriteErrors(t *testing.T) {
	for name, write := range map[string]func(io.Writer) error{"text": report().WriteText, "JSON": report().WriteJSON, "page": report().WriteHTML} {
		if err := write(failing{}); !errors.Is(err, errMilk) {
			t.Errorf("%s: the error is %v", name, err)
		}
	}
}

func TestBarDrawsOnlyOnTerminals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var drawn strings.Builder
		bar := evalloop.Bar(&drawn)
		bar(0, 4)
		<-time.After(90 * time.Second)
		bar(1, 4)
		bar(4, 4)
		lines := strings.Split(drawn.String(), "\r")
		if len(lines) != 4 || !strings.HasSuffix(lines[1], " 0/4   0% 0s") || !strings.HasPrefix(lines[2], "███████░") ||
			!strings.HasSuffix(lines[2], " 1/4  25% 1m30s") || !strings.HasSuffix(lines[3], "██ 4/4 100% 1m30s\n") {
			t.Errorf("drawn was %q", lines)
		}
	})
	file, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	evalloop.Bar(file)(1, 2)
	if info, err := file.Stat(); err != nil || info.Size() != 0 {
		t.Errorf("a file got a bar: %v, %v", info.Size(), err)
	}
}
