package cli

import (
	"fmt"
	"strings"
	"sync"
	"time"
)

// A progress shows the progress of long work on standard error. It
// shows nothing if standard error is not a terminal, and nothing for short work.
type progress struct {
	shell *shell
	what  string
	total int64 // 0 if unknown

	mu    sync.Mutex // guards the fields below
	began time.Time
	shown time.Time
	done  int64
}

const (
	progressAfter = 500 * time.Millisecond
	progressEvery = 100 * time.Millisecond
	progressWidth = 30
)

func (s *shell) progress(what string, total int64) *progress {
	return &progress{shell: s, what: what, total: total, began: time.Now()}
}

// add counts n, and redraws the line from time to time.
func (p *progress) add(n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done += n
	now := time.Now()
	if !isTerminal(p.shell.Stderr) || p.shell.global.json || now.Sub(p.began) < progressAfter || now.Sub(p.shown) < progressEvery {
		return
	}
	p.shown = now
	p.shell.tell("\r\x1b[K%s", p.text(now))
}

// text returns the line to draw.
func (p *progress) text(now time.Time) string {
	rate := float64(p.done) / max(now.Sub(p.began).Seconds(), 1e-9)
	if p.total <= 0 {
		return fmt.Sprintf("%s %d (%.0f/s)", p.what, p.done, rate)
	}
	part := min(1, float64(p.done)/float64(p.total))
	filled := int(part * progressWidth)
	left := "?"
	if rate > 0 {
		left = time.Duration(float64(p.total-p.done) / rate * float64(time.Second)).Round(time.Second).String()
	}
	return fmt.Sprintf("%s [%s%s] %3.0f%%, %s left", p.what, strings.Repeat("=", filled), strings.Repeat(" ", progressWidth-filled), part*100, left)
}

// end removes the line.
func (p *progress) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.shown.IsZero() {
		p.shell.tell("\r\x1b[K")
	}
}
