package gates_test

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// A region is a part of the memory of a process.
type region struct{ from, to int64 }

// regions returns the writable memory of a process.
func regions(t testing.TB, pid int) []region {
	t.Helper()
	maps, err := os.Open(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		t.Fatal(err)
	}
	defer maps.Close()
	var found []region
	for lines := bufio.NewScanner(maps); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) < 5 || !strings.HasPrefix(fields[1], "rw") {
			continue
		}
		var r region
		if _, err := fmt.Sscanf(fields[0], "%x-%x", &r.from, &r.to); err != nil {
			t.Fatal(err)
		}
		found = append(found, r)
	}
	return found
}

// A canary is a body that can be recognized, completely and in parts.
type canary struct {
	mark   string // begins each block
	blocks int
}

const (
	blockBytes = 48 // a multiple of 3, so that blocks are blocks in base64 too
	markBytes  = 30 // as above
	markFormat = "canary-%-4.4s-%017d-"
)

// newCanary returns a canary of at least size bytes.
func newCanary(name string, size int) canary {
	return canary{fmt.Sprintf(markFormat, name, time.Now().UnixNano()%1e17), (size + blockBytes - 1) / blockBytes}
}

func (c canary) payload() []byte {
	var b []byte
	for i := range c.blocks {
		b = fmt.Appendf(b, "%s%06d%012d", c.mark, i, i)
	}
	return b
}

// allMarks begins the marks of all canaries, plain and in base64.
var allMarks = []string{"canary-", base64.StdEncoding.EncodeToString([]byte("canary"))}

// blocksIn records which blocks of which canaries are in a piece of memory, plain or
// in base64. It scans the memory once for each form.
func blocksIn(memory []byte, canaries []canary, found []map[int]bool) {
	for form, mark := range allMarks {
		for rest := memory; ; {
			i := bytes.Index(rest, []byte(mark))
			if i < 0 {
				break
			}
			block := rest[i:]
			rest = block[len(mark):]
			if form == 1 {
				block, _ = base64.StdEncoding.DecodeString(string(block[:min(len(block), blockBytes/3*4)])) // invalid base64 is not a block
			}
			if len(block) < markBytes+6 {
				continue
			}
			for n, c := range canaries {
				if number, err := strconv.Atoi(string(block[markBytes : markBytes+6])); err == nil && string(block[:markBytes]) == c.mark {
					found[n][number] = true
				}
			}
		}
	}
}

// search searches the writable memory of a process for canaries. It
// returns how many blocks of each it found.
func search(t testing.TB, pid int, canaries []canary) (blocks []int, searched int64) {
	t.Helper()
	memory, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		t.Fatal(err)
	}
	defer memory.Close()
	found := make([]map[int]bool, len(canaries))
	for i := range found {
		found[i] = make(map[int]bool)
	}
	const piece, overlap = 4 << 20, 256
	buffer := make([]byte, piece+overlap)
	for _, r := range regions(t, pid) {
		for at := r.from; at < r.to; at += piece {
			n, err := memory.ReadAt(buffer[:min(int64(len(buffer)), r.to-at)], at)
			if err != nil && n == 0 {
				break // unmapped meanwhile
			}
			searched += int64(n)
			blocksIn(buffer[:n], canaries, found)
		}
	}
	blocks = make([]int, len(canaries))
	for i := range found {
		blocks[i] = len(found[i])
	}
	return blocks, searched
}
