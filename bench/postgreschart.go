package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"strings"
)

// The size of a panel of the chart, and the margins around it.
const (
	chartWidth  = 640
	chartHeight = 200
	chartLeft   = 64
	chartTop    = 40
	chartGap    = 64
)

// chartColors are those of the peers: blue, orange, grey, light blue, green and pink, which differ for colour-blind readers too.
var chartColors = []string{"#0072b2", "#d55e00", "#777777", "#56b4e9", "#009e73", "#cc79a7"}

// A chartPanel is one figure of all series over time.
type chartPanel struct {
	title string
	value func(heldPart) float64
}

// writeHeldChart renders a file that the PostgreSQL suite wrote as an image.
func writeHeldChart(image, file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var results postgresResults
	if err := json.Unmarshal(text, &results); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if len(results.Held) == 0 {
		return fmt.Errorf("%s: no run with a held transaction", file)
	}
	return os.WriteFile(image, []byte(heldChart(results.Held)), 0o644)
}

// heldChart draws claims and processor time of each series, with logarithmic axes: a line that rises is decay.
func heldChart(series []heldSeries) string {
	panels := []chartPanel{
		{"claim, median, ms", func(p heldPart) float64 { return p.ClaimP50 / 1000 }},
		{"claim, 99 %, ms", func(p heldPart) float64 { return p.ClaimP99 / 1000 }},
		{"processor time of the server a message, µs", func(p heldPart) float64 { return p.ServerCPU }},
	}
	first, last := 0.0, 0.0
	for _, s := range series {
		for _, w := range s.Windows {
			first, last = min(first, w.At), max(last, w.At)
		}
	}
	height := chartTop + len(panels)*(chartHeight+chartGap)
	var out strings.Builder
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", chartLeft+chartWidth+24, height)
	fmt.Fprintf(&out, `<rect width="100%%" height="100%%" fill="#ffffff"/>`+"\n")
	for i, s := range series {
		x := chartLeft + min(120, chartWidth/len(series))*i
		fmt.Fprintf(&out, `<path d="M%d 16h24" stroke="%s" stroke-width="3"/><text x="%d" y="20">%s</text>`+"\n", x, chartColors[i%len(chartColors)], x+30, s.Name)
	}
	x := func(at float64) float64 { return chartLeft + chartWidth*(at-first)/max(last-first, 1) }
	for i, p := range panels {
		p.draw(&out, series, chartTop+i*(chartHeight+chartGap)+16, x, last)
	}
	out.WriteString("</svg>\n")
	return out.String()
}

// draw draws a panel whose upper edge is at top.
func (p chartPanel) draw(out *strings.Builder, series []heldSeries, top int, x func(float64) float64, last float64) {
	low, high := math.Inf(1), 0.0
	for _, s := range series {
		for _, w := range s.Windows {
			low, high = min(low, p.value(w)), max(high, p.value(w))
		}
	}
	bottom, ceiling := math.Floor(math.Log10(low)), math.Ceil(math.Log10(high))
	ceiling = max(ceiling, bottom+1)
	y := func(value float64) float64 {
		return float64(top) + chartHeight*(1-(math.Log10(value)-bottom)/(ceiling-bottom))
	}
	fmt.Fprintf(out, `<text x="%d" y="%d" font-weight="bold">%s</text>`+"\n", chartLeft, top-6, p.title)
	for power := bottom; power <= ceiling; power++ {
		at := y(math.Pow(10, power))
		fmt.Fprintf(out, `<path d="M%d %.1fh%d" stroke="#dddddd"/><text x="%d" y="%.1f" text-anchor="end">%g</text>`+"\n", chartLeft, at, chartWidth, chartLeft-6, at+4, math.Pow(10, power))
	}
	fmt.Fprintf(out, `<path d="M%.1f %dv%d" stroke="#000000" stroke-dasharray="4 3"/>`+"\n", x(0), top, chartHeight)
	step := max(math.Ceil(last/60/10), 1)
	for minute := 0.0; minute*60 <= last; minute += step {
		fmt.Fprintf(out, `<text x="%.1f" y="%d" text-anchor="middle">%g min</text>`+"\n", x(minute*60), top+chartHeight+16, minute)
	}
	for i, s := range series {
		var points strings.Builder
		for _, w := range s.Windows {
			fmt.Fprintf(&points, "%.1f,%.1f ", x(w.At), y(p.value(w)))
		}
		fmt.Fprintf(out, `<polyline points="%s" fill="none" stroke="%s" stroke-width="2"/>`+"\n", strings.TrimSpace(points.String()), chartColors[i%len(chartColors)])
	}
}
