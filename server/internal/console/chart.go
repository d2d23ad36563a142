package console

import (
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/mailboxmq/mailbox/server/internal/broker"
	h "github.com/mailboxmq/mailbox/server/internal/console/markup"
)

// The size of a chart in its own units, and the time that it shows.
const (
	chartWidth, chartHeight = 360, 64
	chartTime               = time.Hour
)

// A line is one of a chart: a value for each point of a history.
type line struct {
	class, name string
	value       func(p *broker.Point) float64
}

// A chart is lines over the last hour, drawn by the server.
type chart struct {
	title string
	lines []line
	// words tells a value.
	words func(value float64) string
}

func perSecond(n int) float64 { return float64(n) / broker.HistoryEvery.Seconds() }

var charts = []chart{
	{
		title: "Rates", words: func(value float64) string { return strconv.FormatFloat(value, 'f', 1, 64) + " per second" },
		lines: []line{
			{"ready", "sent", func(p *broker.Point) float64 { return perSecond(p.Sent) }},
			{"in_flight", "delivered", func(p *broker.Point) float64 { return perSecond(p.Delivered) }},
			{"answered", "acked", func(p *broker.Point) float64 { return perSecond(p.Acked) }},
			{"dead", "failed", func(p *broker.Point) float64 { return perSecond(p.Failed) }},
		},
	},
	{
		title: "Messages", words: func(value float64) string { return number(int(value)) },
		lines: []line{
			{"ready", "ready", func(p *broker.Point) float64 { return float64(p.Ready) }},
			{"delayed", "delayed", func(p *broker.Point) float64 { return float64(p.Delayed) }},
			{"in_flight", "in flight", func(p *broker.Point) float64 { return float64(p.InFlight) }},
			{"dead", "dead", func(p *broker.Point) float64 { return float64(p.Dead) }},
		},
	},
	{
		title: "Oldest ready message", words: func(value float64) string { return span(time.Duration(value * float64(time.Second))) },
		lines: []line{{"ready", "age", func(p *broker.Point) float64 { return p.OldestReady.Seconds() }}},
	},
}

// history shows the charts of a queue.
func (v *view) history(queue string, now time.Time) h.Node {
	points, err := v.caller.History(v.ctx(), queue)
	if err != nil {
		return nil // the figures above say why
	}
	return drawCharts(points, now)
}

func drawCharts(points []broker.Point, now time.Time) h.Node {
	if len(points) < 2 {
		return empty("Charts appear when the queue was used for half a minute.")
	}
	var nodes h.Group
	for i := range charts {
		nodes = append(nodes, charts[i].draw(points, now))
	}
	return h.Div(h.Class("charts"), nodes)
}

// draw draws a chart. Its text tells those who do not see it what it shows.
func (c *chart) draw(points []broker.Point, now time.Time) h.Node {
	top := 0.0
	for i := range points {
		for _, l := range c.lines {
			top = max(top, l.value(&points[i]))
		}
	}
	if top == 0 && len(c.lines) == 1 {
		return nil
	}
	var paths, legend h.Group
	var told []string
	last := &points[len(points)-1]
	for _, l := range c.lines {
		most := 0.0
		for i := range points {
			most = max(most, l.value(&points[i]))
		}
		if most > 0 { // a line that is 0 all the time would hide others at the bottom
			paths = append(paths, h.El("path", h.Class("line "+l.class), h.Attr("d", l.path(points, now, top))))
		}
		legend = append(legend, h.Li(h.Span(h.Class("state "+l.class), h.Text(l.name)), h.Text(" "+c.words(l.value(last)))))
		told = append(told, l.name+": now "+c.words(l.value(last))+", at most "+c.words(most))
	}
	return h.Figure(h.Class("chart"),
		h.FigCaption(h.Strong(h.Text(c.title)), h.Span(h.Class("quiet"), h.Text("at most "+c.words(top)))),
		h.El("svg", h.Attr("viewBox", "0 0 "+strconv.Itoa(chartWidth)+" "+strconv.Itoa(chartHeight)), h.Attr("preserveAspectRatio", "none"),
			h.Role("img"), h.Aria("label", c.title+" in the last hour. "+strings.Join(told, "; ")), paths),
		h.Ul(h.Class("legend"), legend),
	)
}

// path is a line as the commands of an SVG path. It has gaps where the queue was not measured.
func (l *line) path(points []broker.Point, now time.Time, top float64) string {
	var path strings.Builder
	begin := now.Add(-chartTime)
	var before time.Time
	for i := range points {
		p := &points[i]
		if p.At.Before(begin) {
			continue
		}
		command := "L"
		if before.IsZero() || p.At.Sub(before) > 3*broker.HistoryEvery {
			command = "M"
		}
		before = p.At
		x := chartWidth * float64(p.At.Sub(begin)) / float64(chartTime)
		y := float64(chartHeight - 2)
		if top > 0 {
			y -= (chartHeight - 4) * l.value(p) / top
		}
		path.WriteString(command)
		path.WriteString(strconv.FormatFloat(math.Round(x*10)/10, 'f', -1, 64))
		path.WriteByte(' ')
		path.WriteString(strconv.FormatFloat(math.Round(y*10)/10, 'f', -1, 64))
	}
	return path.String()
}

// The size of a sparkline in pixels: one for each minute of the hour.
const sparkWidth, sparkHeight, sparkBox = 60, 16, "0 0 60 16"

// sparkline draws how many messages of a queue were ready in the last hour, the most in each minute.
func (v *view) sparkline(c *counted, now time.Time) h.Node {
	caller, err := v.of(c.TenantQueue)
	if err != nil {
		return nil
	}
	points, err := caller.History(v.ctx(), c.Queue)
	if err != nil || len(points) < 2 {
		return nil // the figures beside it say why
	}
	var ready [sparkWidth]int // and one more, so that 0 means that the queue was not measured
	most := 1
	for i := range points {
		minute := sparkWidth - 1 - int(now.Sub(points[i].At)/time.Minute)
		if minute < 0 || minute >= sparkWidth {
			continue
		}
		ready[minute] = max(ready[minute], points[i].Ready+1)
		most = max(most, points[i].Ready)
	}
	var path []byte
	for minute, n := range ready {
		if n == 0 {
			continue
		}
		command := byte('L')
		if minute == 0 || ready[minute-1] == 0 {
			command = 'M'
		}
		path = strconv.AppendInt(append(path, command), int64(minute), 10)
		path = strconv.AppendInt(append(path, ' '), int64(sparkHeight-1-(n-1)*(sparkHeight-2)/most), 10)
	}
	if path == nil {
		return nil
	}
	return h.El("svg", h.Class("spark"), h.Attr("viewBox", sparkBox), h.Width(strconv.Itoa(sparkWidth)), h.Height(strconv.Itoa(sparkHeight)),
		h.Role("img"), h.Aria("label", "ready in the last hour, at most "+number(most)), h.El("path", h.Class("line ready"), h.Attr("d", string(path))))
}

// total adds up the histories of queues, point by point.
func (v *view) total(queues []counted) []broker.Point {
	var sum broker.HistoryTotal
	for i := range queues {
		q := &queues[i]
		caller, err := v.of(q.TenantQueue)
		if err == nil && q.problem == "" {
			_ = caller.AddHistory(v.ctx(), &sum, q.Queue) // a queue that is refused adds nothing
		}
	}
	return sum.Points()
}
