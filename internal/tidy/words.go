package tidy

import (
	"cmp"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// Retired are the words that docs/style.md retires, with what to write
// instead. Words returns a sentence for each of them that a file still uses.
var Retired = map[string]string{
	"bury": "dead-letter", "buries": "dead-letters", "buried": "dead-lettered", "burying": "dead-lettering",
	"burial": "dead letter", "burials": "dead letters",
	"grave": "dead letter", "graves": "dead letters", "graveyard": "dead-letter queue",
	"minder": "watcher", "minders": "watchers",
	"parcel": "message", "parcels": "messages",
	"haul": "transfer", "hauls": "transfers",
	"cargo": "batch", "crew": "goroutines", "crews": "goroutines",
	"farewell": "drain", "farewells": "drains",
	"gathering": "group", "gatherings": "groups",
	"shelf": "backlog", "shelves": "backlogs",
	"nobody": "no caller, no receiver", "somebody": "a caller, a client",
	"whoever": "the caller that", "anew": "again",
	"topic": "queue", "topics": "queues",
}

// Reviewed are the words that are often right and often lazy. They fail
// nothing; CountReviewed counts them for a reviewer.
var Reviewed = []string{"place", "box", "entry", "item", "out", "pending", "handle", "everybody"}

// The retired phrases. "There is no message" is English, "this is no message"
// is not; neither is meant by a comparison such as "is no longer than".
var (
	phraseToBe = regexp.MustCompile(`(?i)\bis\s+to\s+be\b`)
	phraseIsNo = regexp.MustCompile(`(?i)(?:\b(\w+)\s+)?\bis\s+no\s+(\w+)`)
)

// comparisons are the words after "is no" that make a comparison of it.
var comparisons = []string{
	"longer", "more", "less", "fewer", "later", "earlier", "greater", "larger", "smaller", "bigger",
	"older", "newer", "better", "worse", "shorter", "faster", "slower", "higher", "lower", "different",
}

// The lists of the rule: what is not brought up to docs/style.md, and what has
// to keep its name.
const (
	wordsFile = "internal/tidy/words.txt"
	keptFile  = "internal/tidy/kept.txt"
)

// wordless are the files that name retired words because they are about them, and pages that are
// generated from files that the rule covers.
var wordless = []string{
	"docs/grpc-reference.md", "docs/http-reference.md", "docs/style.md", "internal/tidy/words.go", "internal/tidy/wordtext.go", "internal/tidy/words_test.go",
}

// A finding is one retired word or phrase at one line of a file.
type finding struct {
	unit, file string
	line       int
	text       string
}

// Words checks that no name, comment, string, document, script or file name
// uses a retired word. A unit that does is listed in words.txt with how many
// findings it has at most: a package that is not listed is clean, and no count
// may grow. `make words` lowers the counts.
func Words(t *Tree) []string {
	kept, wrong := readKept(t.Texts[keptFile])
	found := findWords(t, kept)
	allowed, unreadable := readCounts(t.Texts[wordsFile])
	wrong = append(wrong, unreadable...)
	byUnit := make(map[string][]finding)
	for _, f := range found {
		byUnit[f.unit] = append(byUnit[f.unit], f)
	}
	for _, unit := range sortedKeys(byUnit) {
		list, limit := byUnit[unit], allowed[unit]
		if len(list) <= limit {
			continue
		}
		if limit > 0 {
			wrong = append(wrong, fmt.Sprintf("%s has %d retired words, %s allows %d: it may only shrink", unit, len(list), wordsFile, limit))
		}
		for _, f := range list {
			wrong = append(wrong, fmt.Sprintf("%s:%d %s: see docs/style.md", f.file, f.line, f.text))
		}
	}
	for _, unit := range sortedKeys(allowed) {
		if len(byUnit[unit]) == 0 {
			wrong = append(wrong, fmt.Sprintf("%s has no retired words: take its line out of %s (make words does)", unit, wordsFile))
		}
	}
	for _, k := range kept {
		if !k.needed {
			wrong = append(wrong, fmt.Sprintf("%s: %q is not needed in %s: take its line out", keptFile, k.token, k.folder))
		}
	}
	return wrong
}

// LowerCounts returns words.txt with every count that is too high lowered, and
// the lines of clean units taken out. It never raises a count. The empty lines
// between the entries stay, so that two branches that lower neighbouring
// counts merge without a conflict.
func LowerCounts(t *Tree) string {
	kept, _ := readKept(t.Texts[keptFile])
	counts := make(map[string]int)
	for _, f := range findWords(t, kept) {
		counts[f.unit]++
	}
	var b strings.Builder
	for line := range strings.Lines(t.Texts[wordsFile]) {
		unit, listed, ok := countLine(line)
		switch {
		case !ok:
			b.WriteString(line)
		case counts[unit] > 0:
			fmt.Fprintf(&b, "%s %d\n", unit, min(counts[unit], listed))
		}
	}
	return b.String()
}

// CountReviewed returns, for each unit, how often it uses the words that a
// reviewer looks at, one line a unit.
func CountReviewed(t *Tree) []string {
	counts := make(map[string]map[string]int)
	for _, name := range t.paths("") {
		if !worded(name) {
			continue
		}
		unit := unitOf(name)
		for word := range t.words(name) {
			if lower := strings.ToLower(word.text); slices.Contains(Reviewed, lower) {
				if counts[unit] == nil {
					counts[unit] = make(map[string]int)
				}
				counts[unit][lower]++
			}
		}
	}
	var lines []string
	for _, unit := range sortedKeys(counts) {
		line := unit
		for _, word := range Reviewed {
			if n := counts[unit][word]; n > 0 {
				line += fmt.Sprintf(" %s=%d", word, n)
			}
		}
		lines = append(lines, line)
	}
	return lines
}

// unitOf is what a file is counted with: Go and Lua with their folder, any
// other file with itself.
func unitOf(name string) string {
	if ending := path.Ext(name); ending == ".go" || ending == ".lua" {
		return path.Dir(name)
	}
	return name
}

// worded reports whether the rule covers the file: not what is generated, and
// not the scripts of an earlier version that data is migrated from.
func worded(name string) bool {
	if strings.HasPrefix(name, "gen/") || strings.HasPrefix(name, "redisbox/testdata/") || slices.Contains(wordless, name) {
		return false
	}
	switch path.Ext(name) {
	case ".go", ".lua", ".md", ".proto", ".sh", ".yaml", ".yml", ".mk":
		return true
	}
	return path.Base(name) == "Makefile" || strings.HasPrefix(name, "ci/")
}

// findWords returns the findings of the tree in the order of files and lines.
// It marks the kept names that hide one as needed.
func findWords(t *Tree, kept []*keptName) []finding {
	var found []finding
	for _, name := range t.paths("") {
		if !worded(name) {
			continue
		}
		here := slices.DeleteFunc(slices.Clone(kept), func(k *keptName) bool { return !k.covers(name) })
		first := len(found)
		add := func(line int, text string) {
			found = append(found, finding{unitOf(name), name, line, text})
		}
		for _, word := range splitWords(strings.TrimSuffix(path.Base(name), path.Ext(name))) {
			if instead, ok := Retired[strings.ToLower(word.text)]; ok && !hidden(here, word) {
				add(1, fmt.Sprintf("the file name says %q, write %q", word.text, instead))
			}
		}
		prose := t.prose(name)
		for word := range t.words(name) {
			instead, retired := Retired[strings.ToLower(word.text)]
			if !retired || word.isTopic() && t.onWire(name, prose, word) || hidden(here, word) {
				continue
			}
			add(word.line, fmt.Sprintf("says %q, write %q", word.text, instead))
		}
		for _, at := range phraseToBe.FindAllStringIndex(prose, -1) {
			add(lineOf(prose, at[0]), `says "is to be", write "must be" or "is"`)
		}
		for _, at := range phraseIsNo.FindAllStringSubmatchIndex(prose, -1) {
			before, after := "", strings.ToLower(prose[at[4]:at[5]])
			if at[2] >= 0 {
				before = strings.ToLower(prose[at[2]:at[3]])
			}
			if before != "there" && !slices.Contains(comparisons, after) {
				add(lineOf(prose, at[4]), fmt.Sprintf(`says "is no %s", write "is not a %s"`, after, after))
			}
		}
		slices.SortStableFunc(found[first:], func(a, b finding) int { return cmp.Compare(a.line, b.line) })
	}
	return found
}

// A keptName is a name that something outside the code fixes: the wire, a
// stored record, another project.
type keptName struct {
	folder, token string
	needed        bool
}

func (k *keptName) covers(file string) bool {
	return k.folder == file || strings.HasPrefix(file, strings.TrimSuffix(k.folder, "/")+"/")
}

// hidden reports whether the word is part of a kept name.
func hidden(kept []*keptName, w word) bool {
	for _, k := range kept {
		for from := 0; ; {
			i := strings.Index(w.around[from:], k.token)
			if i < 0 {
				break
			}
			i += from
			if end := i + len(k.token); i <= w.from && w.from+len(w.text) <= end && !letterAt(w.around, i-1) && !letterAt(w.around, end) {
				k.needed = true
				return true
			}
			from = i + 1
		}
	}
	return false
}

func letterAt(s string, i int) bool {
	return i >= 0 && i < len(s) && unicode.IsLetter(rune(s[i]))
}

// readKept reads lines such as
//
//	server/internal/rpcapi Bury: the method of the generated service
func readKept(text string) (kept []*keptName, wrong []string) {
	for _, line := range entries(text) {
		name, reason, _ := strings.Cut(line, ": ")
		folder, token, ok := strings.Cut(name, " ")
		if !ok || strings.TrimSpace(reason) == "" {
			wrong = append(wrong, fmt.Sprintf("%s: %q is not a folder, a name, a colon and a reason", keptFile, line))
			continue
		}
		kept = append(kept, &keptName{folder: folder, token: token})
	}
	return kept, wrong
}

// readCounts reads lines such as "worker 12".
func readCounts(text string) (counts map[string]int, wrong []string) {
	counts = make(map[string]int)
	for _, line := range entries(text) {
		unit, count, ok := countLine(line)
		if _, twice := counts[unit]; !ok || twice {
			wrong = append(wrong, fmt.Sprintf("%s: %q is not a package or file, once, and its count", wordsFile, line))
			continue
		}
		counts[unit] = count
	}
	return counts, wrong
}

func countLine(line string) (unit string, count int, ok bool) {
	unit, number, ok := strings.Cut(strings.TrimSpace(line), " ")
	if !ok || strings.HasPrefix(unit, "#") {
		return "", 0, false
	}
	count, err := strconv.Atoi(number)
	return unit, count, err == nil && count > 0
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}
