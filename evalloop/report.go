package evalloop

import (
	"maps"
	"math"
	"slices"

	"github.com/mailboxmq/mailbox/mainloop"
)

// A Report is a list of results, with what follows from it.
type Report struct {
	Results []Result `json:"results"`
}

// A Summary is a report, or one experiment of it, in numbers. Rates and scores cover
// the samples that could be scored; latencies cover all.
type Summary struct {
	// Experiment is the name of the experiment; empty for all results.
	Experiment string `json:"experiment_name,omitempty"`
	Total      int    `json:"total"`
	// Successful samples were scored, and Passed of them passed.
	Successful    int            `json:"successful"`
	Passed        int            `json:"passed"`
	PassRate      float64        `json:"pass_rate"`
	MeanScore     float64        `json:"mean_score"`
	MeanLatencyMS float64        `json:"mean_latency_ms"`
	P95LatencyMS  float64        `json:"p95_latency_ms"`
	Usage         mainloop.Usage `json:"usage"`
}

// Summary sums up all results.
func (r *Report) Summary() Summary { return summarize("", r.Results) }

// Experiments sums up each experiment, in the order of their names.
func (r *Report) Experiments() []Summary {
	byName := r.byExperiment()
	var all []Summary
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		all = append(all, summarize(name, byName[name]))
	}
	return all
}

func (r *Report) byExperiment() map[string][]Result {
	groups := make(map[string][]Result)
	for _, result := range r.Results {
		groups[result.Experiment] = append(groups[result.Experiment], result)
	}
	return groups
}

func summarize(name string, results []Result) Summary {
	s := Summary{Experiment: name, Total: len(results)}
	latencies := make([]float64, 0, len(results))
	for _, result := range results {
		latencies = append(latencies, result.LatencyMS)
		s.Usage = s.Usage.Add(result.Usage)
		if !result.Success() {
			continue
		}
		s.Successful++
		s.MeanScore += result.Score.Value
		if result.Score.Passed {
			s.Passed++
		}
	}
	if s.Successful > 0 {
		s.MeanScore /= float64(s.Successful)
		s.PassRate = float64(s.Passed) / float64(s.Successful)
	}
	s.MeanLatencyMS = mean(latencies)
	s.P95LatencyMS = percentile(latencies, 0.95)
	return s
}

func mean(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sum := 0.0
	for _, value := range values {
		sum += value
	}
	return sum / float64(len(values))
}

// percentile returns the smallest value that at least the given share of all values
// does not exceed.
func percentile(values []float64, share float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[max(0, int(math.Ceil(share*float64(len(sorted))))-1)]
}

// Failed returns the results that were scored and did not pass.
func (r *Report) Failed() []Result {
	return r.where(func(result *Result) bool { return result.Success() && !result.Score.Passed })
}

// Errors returns the results that could not be scored.
func (r *Report) Errors() []Result {
	return r.where(func(result *Result) bool { return !result.Success() })
}

func (r *Report) where(chosen func(*Result) bool) []Result {
	var found []Result
	for i := range r.Results {
		if chosen(&r.Results[i]) {
			found = append(found, r.Results[i])
		}
	}
	return found
}

// A Comparison compares an experiment with a baseline. Differences are candidate minus
// baseline.
type Comparison struct {
	Baseline  Summary `json:"baseline"`
	Candidate Summary `json:"candidate"`
	PassRate  float64 `json:"pass_rate_delta"`
	MeanScore float64 `json:"mean_score_delta"`
	LatencyMS float64 `json:"mean_latency_ms_delta"`
	// Relative is the difference of the pass rates as a share of the baseline's;
	// nil if that is 0.
	Relative *float64 `json:"relative_improvement"`
	// Fixed samples failed in the baseline and pass in the candidate, Broken ones
	// the other way round: by id, in order.
	Fixed  []string `json:"fixed,omitempty"`
	Broken []string `json:"broken,omitempty"`
	// Unmatched samples have a result in one of them only. The more there are, the
	// less the differences mean.
	Unmatched []string `json:"unmatched,omitempty"`
}

// Compare compares two experiments; ok is false if one of them has no results.
func (r *Report) Compare(baseline, candidate string) (comparison Comparison, ok bool) {
	groups := r.byExperiment()
	before, after := groups[baseline], groups[candidate]
	if len(before) == 0 || len(after) == 0 {
		return Comparison{}, false
	}
	c := Comparison{Baseline: summarize(baseline, before), Candidate: summarize(candidate, after)}
	c.PassRate = c.Candidate.PassRate - c.Baseline.PassRate
	c.MeanScore = c.Candidate.MeanScore - c.Baseline.MeanScore
	c.LatencyMS = c.Candidate.MeanLatencyMS - c.Baseline.MeanLatencyMS
	if c.Baseline.PassRate > 0 {
		relative := c.PassRate / c.Baseline.PassRate
		c.Relative = &relative
	}
	passed := make(map[string]bool)
	for i := range before {
		passed[before[i].SampleID] = before[i].Score.Passed
	}
	seen := make(map[string]bool)
	for i := range after {
		id, passes := after[i].SampleID, after[i].Score.Passed
		seen[id] = true
		switch did, known := passed[id]; {
		case !known:
			c.Unmatched = append(c.Unmatched, id)
		case known && !did && passes:
			c.Fixed = append(c.Fixed, id)
		case known && did && !passes:
			c.Broken = append(c.Broken, id)
		}
	}
	for id := range passed {
		if !seen[id] {
			c.Unmatched = append(c.Unmatched, id)
		}
	}
	slices.Sort(c.Fixed)
	slices.Sort(c.Broken)
	slices.Sort(c.Unmatched)
	c.Unmatched = slices.Compact(c.Unmatched)
	return c, true
}

// comparisons compares every other experiment with the baseline: the one of that
// name, or the first.
func (r *Report) comparisons() []Comparison {
	experiments := r.Experiments()
	if len(experiments) < 2 {
		return nil
	}
	baseline := experiments[0].Experiment
	for _, e := range experiments {
		if e.Experiment == mainloop.Baseline().Name {
			baseline = e.Experiment
		}
	}
	var all []Comparison
	for _, e := range experiments {
		if e.Experiment == baseline {
			continue
		}
		if comparison, ok := r.Compare(baseline, e.Experiment); ok {
			all = append(all, comparison)
		}
	}
	return all
}
