package evalloop

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// barWidth is the width of the bar in characters.
const barWidth = 30

// Bar returns a function for CollectOptions.Progress that draws a progress bar to w on
// one line. If w is a file but not a terminal, it draws nothing.
func Bar(w io.Writer) func(done, total int) {
	if file, ok := w.(*os.File); ok && !isTerminal(file) {
		return func(int, int) {}
	}
	began := time.Now()
	return func(done, total int) {
		share := 1.0
		if total > 0 {
			share = min(1, float64(done)/float64(total))
		}
		filled := int(share * barWidth)
		end := ""
		if done >= total {
			end = "\n"
		}
		// An error means that the terminal is gone.
		_, _ = fmt.Fprintf(w, "\r%s%s %d/%d %3.0f%% %s%s", strings.Repeat("█", filled), strings.Repeat("░", barWidth-filled),
			done, total, 100*share, time.Since(began).Round(time.Second), end)
	}
}

// isTerminal reports whether a file is a terminal.
func isTerminal(file *os.File) bool {
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && info.Name() != "null"
}
