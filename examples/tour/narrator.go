package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// A narrator prints what happens, and when.
type narrator struct {
	start  time.Time
	colour bool

	mu  sync.Mutex // guards out
	out io.Writer
}

// narrate prints to out, in colour if that is a terminal and NO_COLOR is not set.
func narrate(out *os.File) *narrator {
	info, err := out.Stat()
	terminal := err == nil && info.Mode()&os.ModeCharDevice != 0
	return &narrator{start: time.Now(), out: out, colour: terminal && os.Getenv("NO_COLOR") == ""}
}

const (
	bold = "\x1b[1m"
	dim  = "\x1b[2m"
	cyan = "\x1b[36m"
)

func (n *narrator) chapter(title string) {
	n.write("\n%s\n", n.paint(bold, title))
}

// say writes one line: when, who, what.
func (n *narrator) say(who, format string, args ...any) {
	elapsed := fmt.Sprintf("%6.3fs", time.Since(n.start).Seconds())
	n.write("%s  %s %s\n", n.paint(dim, elapsed), n.paint(cyan, fmt.Sprintf("%-7s", who)), fmt.Sprintf(format, args...))
}

func (n *narrator) write(format string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	// The tour continues if out cannot be written.
	_, _ = fmt.Fprintf(n.out, format, args...)
}

func (n *narrator) paint(style, text string) string {
	if !n.colour {
		return text
	}
	return style + text + "\x1b[0m"
}
