package evalloop

import (
	"fmt"
	"html"
	"math"
	"strings"
)

// A bar is one bar of a chart.
type bar struct {
	label string
	value float64 // 0…1 of the width
	text  string
}

// The dimensions of charts, in pixels.
const (
	chartWidth  = 560
	labelWidth  = 150
	textWidth   = 80
	barHeight   = 18
	barStep     = 26
	chartHeight = 140
)

// barChart draws horizontal bars as an SVG image.
func barChart(title string, bars []bar) string {
	var svg strings.Builder
	const space = chartWidth - labelWidth - textWidth
	height := barStep * max(1, len(bars))
	fmt.Fprintf(&svg, `<figure><figcaption>%[1]s</figcaption><svg role="img" aria-label="%[1]s" viewBox="0 0 %[2]d %[3]d" width="%[4]d" height="%[5]d">`,
		html.EscapeString(title), chartWidth, height, chartWidth, height)
	for i, b := range bars {
		y := i * barStep
		width := space * min(max(b.value, 0), 1)
		fmt.Fprintf(&svg, `<text x="%d" y="%d" class="label">%s</text>`, labelWidth-8, y+14, html.EscapeString(clip(b.label)))
		fmt.Fprintf(&svg, `<rect x="%d" y="%d" width="%.1f" height="%d"/>`, labelWidth, y, width, barHeight)
		fmt.Fprintf(&svg, `<text x="%.1f" y="%d">%s</text>`, labelWidth+width+6, y+14, html.EscapeString(b.text))
	}
	svg.WriteString("</svg></figure>\n")
	return svg.String()
}

// clip shortens a label so that it fits.
func clip(label string) string {
	const longest = 22
	if runes := []rune(label); len(runes) > longest {
		return string(runes[:longest-1]) + "…"
	}
	return label
}

// histogramBins is the number of columns of a histogram.
const histogramBins = 20

// histogram draws the distribution of values as an SVG image.
func histogram(title, unit string, values []float64, lowest, highest float64) string {
	counts, most := make([]int, histogramBins), 1
	for _, value := range values {
		bin := 0
		if highest > lowest {
			bin = int(math.Floor((value - lowest) / (highest - lowest) * histogramBins))
		}
		bin = min(max(bin, 0), histogramBins-1)
		counts[bin]++
		most = max(most, counts[bin])
	}
	var svg strings.Builder
	fmt.Fprintf(&svg, `<figure><figcaption>%[1]s</figcaption><svg role="img" aria-label="%[1]s" viewBox="0 0 %[2]d %[3]d" width="%[2]d" height="%[3]d">`,
		html.EscapeString(title), chartWidth, chartHeight+20)
	const step = chartWidth / histogramBins
	const highestColumn = chartHeight - 16 // room for the number above it
	for i, n := range counts {
		if n == 0 {
			continue
		}
		height := float64(highestColumn) * float64(n) / float64(most)
		fmt.Fprintf(&svg, `<rect x="%d" y="%.1f" width="%d" height="%.1f"/>`, i*step, chartHeight-height, step-2, height)
		fmt.Fprintf(&svg, `<text x="%d" y="%.1f" class="count">%d</text>`, i*step+step/2-1, chartHeight-height-4, n)
	}
	fmt.Fprintf(&svg, `<line x1="0" y1="%[1]d" x2="%[2]d" y2="%[1]d"/>`, chartHeight, chartWidth)
	fmt.Fprintf(&svg, `<text x="0" y="%d">%.4g%s</text>`, chartHeight+16, lowest, html.EscapeString(unit))
	fmt.Fprintf(&svg, `<text x="%d" y="%d" class="label">%.4g%s</text>`, chartWidth, chartHeight+16, highest, html.EscapeString(unit))
	svg.WriteString("</svg></figure>\n")
	return svg.String()
}
