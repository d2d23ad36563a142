package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
)

// A watcher shows the counts of queues repeatedly.
type watcher struct {
	api      *api
	queues   []string
	interval time.Duration
}

// watch shows counts until ctx ends: a live view at a terminal, tables or lines of
// JSON otherwise.
func (s *shell) watch(ctx context.Context, w *watcher) error {
	if isTerminal(s.Stdout) && isTerminal(s.Stdin) && !s.global.json {
		program := tea.NewProgram(&liveView{ctx: ctx, watcher: w},
			tea.WithContext(ctx), tea.WithInput(s.Stdin), tea.WithOutput(s.Stdout), tea.WithEnvironment(s.Environ))
		final, err := program.Run()
		if view, ok := final.(*liveView); ok && view.fatal != nil {
			return view.fatal
		}
		if err != nil && ctx.Err() == nil && !errors.Is(err, tea.ErrInterrupted) {
			return err
		}
		return nil
	}
	ticker := time.NewTicker(w.interval)
	defer ticker.Stop()
	for first := true; ; first = false {
		counts, err := w.api.allStats(ctx, w.queues)
		if ctx.Err() != nil {
			return nil // interrupted, which ends the watch
		}
		if err != nil {
			return err
		}
		if !first && !s.global.json {
			if err := s.line(""); err != nil {
				return err
			}
		}
		if err := s.printStats(counts, timeOf(time.Now())); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// A liveView is the view at a terminal. It shows how the counts change.
type liveView struct {
	ctx     context.Context //nolint:containedctx // the view lives as long as the command
	watcher *watcher
	now     sample
	before  sample
	failed  error // of the latest sample
	fatal   error // ends the view
	height  int
}

// A sample is the counts at one moment.
type sample struct {
	at     time.Time
	counts []statsView
	err    error
}

var _ tea.Model = (*liveView)(nil)

// Init takes the first sample.
func (v *liveView) Init() tea.Cmd { return v.look }

func (v *liveView) look() tea.Msg {
	counts, err := v.watcher.api.allStats(v.ctx, v.watcher.queues)
	return sample{time.Now(), counts, err}
}

type tick struct{}

// Update handles an event.
func (v *liveView) Update(message tea.Msg) (tea.Model, tea.Cmd) {
	switch m := message.(type) {
	case tea.WindowSizeMsg:
		v.height = m.Height
	case tea.KeyPressMsg:
		switch m.String() {
		case "q", "esc", "ctrl+c":
			return v, tea.Quit
		}
	case sample:
		v.failed = m.err
		if m.err == nil {
			v.before, v.now = v.now, m
		} else if f := explain(m.err); f.exit != exitUnreachable && f.exit != exitFull {
			v.fatal = m.err
			return v, tea.Quit
		}
		return v, tea.Tick(v.watcher.interval, func(time.Time) tea.Msg { return tick{} })
	case tick:
		return v, v.look
	}
	return v, nil
}

// View draws the view.
func (v *liveView) View() tea.View {
	view := tea.NewView(v.text())
	view.AltScreen = true
	return view
}

// text returns the text to draw: counts, and by how many messages each queue grows or
// shrinks each second.
func (v *liveView) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "mailbox at %s, every %v; q ends\n\n", v.watcher.api.endpoint.shown, v.watcher.interval)
	if v.failed != nil {
		fmt.Fprintf(&b, "%s\n\n", explain(v.failed).sentence)
	}
	earlier := make(map[string]int, len(v.before.counts))
	for _, c := range v.before.counts {
		earlier[c.Queue] = c.waiting()
	}
	elapsed := v.now.at.Sub(v.before.at).Seconds()
	t := statsTable(v.now.counts)
	t.header = append(t.header, "CHANGE/S")
	for i, c := range v.now.counts {
		change := ""
		if was, known := earlier[c.Queue]; known && elapsed > 0 {
			change = fmt.Sprintf("%+.0f", float64(c.waiting()-was)/elapsed)
		}
		t.rows[i] = append(t.rows[i], change)
	}
	hidden := 0
	if room := v.height - 6; room > 0 && len(t.rows) > room {
		hidden = len(t.rows) - room
		t.rows = t.rows[:room]
	}
	_ = t.write(&b) // writing to a Builder cannot fail
	if hidden > 0 {
		fmt.Fprintf(&b, "and %d more\n", hidden)
	}
	return b.String()
}

// waiting returns the number of messages that are not dead.
func (b *statsBody) waiting() int { return b.Ready + b.Delayed + b.InFlight }
