// Package story reads the language of sequential conformance cases.
//
// A story is a header line, blocks of commands, and the output that each block must print:
//
//	== ACK-1 ack of one message leaves the others
//	needs fifo
//	send a b c
//	receive 3
//	ack b
//	stats
//	----
//	a b c
//	2 in flight
//
// A line of dashes ends the commands of a block, an empty line its output. A block without dashes
// must print nothing. Lines that begin with # are comments. Spaces around a line mean nothing, so
// that a failing random program can be pasted in as it was printed. Package drivertest runs stories on
// every backend, and the tests of internal/engine on a shard; the verbs are theirs.
package story

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// A Story is one case.
type Story struct {
	File   string
	Line   int // of the header
	Rule   string
	Title  string
	Needs  []string
	Blocks []Block
}

// A Block is a sequence of commands and their output.
type Block struct {
	Commands []Command
	// Want are the lines of output. The first is line WantLine of the file.
	Want     []string
	WantLine int
}

// A Command is one line: a verb and its arguments.
type Command struct {
	Line  int
	Queue string // of "in QUEUE VERB …"; "" means the queue under test
	Verb  string
	Parts []Part // separated by commas; at least one
}

// A Part is a list of words and the options for them.
type Part struct {
	Words   []string
	Options []Option
}

// An Option is "key=value".
type Option struct{ Key, Value string }

// String returns a line that parses as the command.
func (c Command) String() string {
	var b strings.Builder
	if c.Queue != "" {
		b.WriteString("in " + Quote(c.Queue) + " ")
	}
	b.WriteString(c.Verb)
	for i, part := range c.Parts {
		if i > 0 {
			b.WriteByte(',')
		}
		for _, word := range part.Words {
			b.WriteString(" " + Quote(word))
		}
		for _, option := range part.Options {
			b.WriteString(" " + Quote(option.Key) + "=" + Quote(option.Value))
		}
	}
	return b.String()
}

// Quote returns a word as it must be written: in quotation marks unless it is plain.
func Quote(word string) string {
	if word == "" || word == "in" || strings.Contains(word, "[") || strings.ContainsFunc(word, func(r rune) bool { return !plain(r) }) {
		return strconv.Quote(word)
	}
	return word
}

// plain reports whether a character needs no quotation marks.
func plain(r rune) bool {
	return r > ' ' && r < 0x7f && !strings.ContainsRune("\"'`,=\\", r)
}

// Parse reads the stories of a file. Commands before the first header make a story without a
// title.
func Parse(file, text string) ([]Story, error) {
	p := parser{file: file}
	for i, line := range strings.Split(text, "\n") {
		if err := p.line(i+1, strings.TrimSpace(line)); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", file, i+1, err)
		}
	}
	return p.stories, nil
}

type parser struct {
	file    string
	stories []Story
	inBlock bool
	inWant  bool
}

func (p *parser) line(number int, line string) error {
	switch {
	case line == "":
		p.inBlock, p.inWant = false, false
		return nil
	case p.inWant:
		block := p.block()
		block.Want = append(block.Want, line)
		return nil
	case strings.HasPrefix(line, "#"):
		return nil
	case strings.HasPrefix(line, "== "):
		rule, title, ok := strings.Cut(line[3:], " ")
		if !ok || rule == "" || title == "" {
			return fmt.Errorf("header %q; want \"== RULE title\"", line)
		}
		p.stories = append(p.stories, Story{File: p.file, Line: number, Rule: rule, Title: title})
		p.inBlock = false
		return nil
	case line == "----":
		if !p.inBlock {
			return fmt.Errorf("output without commands")
		}
		p.inWant = true
		p.block().WantLine = number + 1
		return nil
	}
	return p.command(number, line)
}

// story returns the story that is being read.
func (p *parser) story(number int) *Story {
	if len(p.stories) == 0 {
		p.stories = append(p.stories, Story{File: p.file, Line: number})
	}
	return &p.stories[len(p.stories)-1]
}

// block returns the block that is being read.
func (p *parser) block() *Block {
	s := p.story(0)
	return &s.Blocks[len(s.Blocks)-1]
}

func (p *parser) command(number int, line string) error {
	command, err := ParseCommand(line)
	if err != nil {
		return err
	}
	command.Line = number
	s := p.story(number)
	if command.Verb == "needs" {
		if len(s.Blocks) > 0 {
			return fmt.Errorf("needs belong directly below the header")
		}
		s.Needs = append(s.Needs, command.Parts[0].Words...)
		return nil
	}
	if !p.inBlock {
		s.Blocks = append(s.Blocks, Block{WantLine: number + 1})
		p.inBlock = true
	}
	block := p.block()
	block.Commands = append(block.Commands, command)
	return nil
}

// ParseCommand reads one command.
func ParseCommand(line string) (c Command, err error) {
	tokens, err := split(line)
	if err != nil {
		return c, err
	}
	if len(tokens) > 2 && tokens[0] == (token{text: "in"}) {
		if tokens[1].option || tokens[1].comma || tokens[1].text == "" {
			return c, fmt.Errorf("in: want the name of a queue")
		}
		c.Queue, tokens = tokens[1].text, tokens[2:]
	}
	verb := tokens[0]
	if verb.option || verb.comma || Quote(verb.text) != verb.text {
		return c, fmt.Errorf("invalid verb %q", verb.text)
	}
	c.Verb = verb.text
	part := Part{}
	for _, t := range tokens[1:] {
		switch {
		case t.comma:
			c.Parts = append(c.Parts, part)
			part = Part{}
		case t.option:
			part.Options = append(part.Options, Option{t.text, t.value})
		default:
			words, err := expand(t)
			if err != nil {
				return c, err
			}
			part.Words = append(part.Words, words...)
		}
	}
	c.Parts = append(c.Parts, part)
	return c, nil
}

// A token is a word, an option or a comma.
type token struct {
	text   string
	value  string // of an option
	option bool
	comma  bool
	quoted bool
}

// split splits a line into tokens. Nothing returns no tokens.
func split(line string) (tokens []token, err error) {
	rest := strings.TrimLeft(line, " \t")
	for rest != "" {
		if rest[0] == ',' {
			tokens = append(tokens, token{comma: true})
			rest = strings.TrimLeft(rest[1:], " \t")
			continue
		}
		var t token
		if t.text, t.quoted, rest, err = word(rest); err != nil {
			return nil, err
		}
		if strings.HasPrefix(rest, "=") {
			t.option = true
			if t.value, _, rest, err = word(rest[1:]); err != nil {
				return nil, err
			}
		}
		if rest != "" && !strings.ContainsRune(" \t,", rune(rest[0])) {
			return nil, fmt.Errorf("unexpected %q", rest)
		}
		rest = strings.TrimLeft(rest, " \t")
		tokens = append(tokens, t)
	}
	if len(tokens) == 0 {
		return nil, fmt.Errorf("no command")
	}
	return tokens, nil
}

// word takes one word off a text.
func word(text string) (word string, quoted bool, rest string, err error) {
	if strings.HasPrefix(text, `"`) {
		prefix, err := strconv.QuotedPrefix(text)
		if err != nil {
			return "", false, "", fmt.Errorf("unterminated quotation: %s", text)
		}
		word, err = strconv.Unquote(prefix)
		return word, true, text[len(prefix):], err
	}
	end := strings.IndexFunc(text, func(r rune) bool { return !plain(r) })
	if end < 0 {
		end = len(text)
	}
	if end == 0 {
		return "", false, "", fmt.Errorf("want a word at %q", text)
	}
	return text[:end], false, text[end:], nil
}

// maxRange bounds what one word expands to.
const maxRange = 10_000

// expand returns the words of x[1..3], which are x1 x2 x3, or the word.
func expand(t token) ([]string, error) {
	prefix, rest, found := strings.Cut(t.text, "[")
	first, last, ranged := strings.Cut(strings.TrimSuffix(rest, "]"), "..")
	if t.quoted || !found || !ranged || !strings.HasSuffix(rest, "]") {
		return []string{t.text}, nil
	}
	from, err := strconv.Atoi(first)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", t.text, err)
	}
	to, err := strconv.Atoi(last)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", t.text, err)
	}
	if from > to || to-from >= maxRange {
		return nil, fmt.Errorf("%s: want a range of 1 to %d words", t.text, maxRange)
	}
	var words []string
	for i := from; i <= to; i++ {
		words = append(words, prefix+strconv.Itoa(i))
	}
	return words, nil
}

// Expand returns a line of output with its ranges expanded.
func Expand(line string) string {
	if !strings.Contains(line, "[") {
		return line
	}
	var words []string
	for word := range strings.FieldsSeq(line) {
		expanded, err := expand(token{text: word})
		if err != nil {
			expanded = []string{word}
		}
		words = append(words, expanded...)
	}
	return strings.Join(words, " ")
}

// Rewrite returns the text of a file with the output of its blocks replaced. The stories must be
// those that Parse returned for it, with another Want.
func Rewrite(text string, stories []Story) string {
	lines := strings.Split(text, "\n")
	for _, s := range slices.Backward(stories) {
		for _, block := range slices.Backward(s.Blocks) {
			from := block.WantLine - 1
			dashes := strings.TrimSpace(lines[from-1]) == "----"
			to := from
			for dashes && to < len(lines) && strings.TrimSpace(lines[to]) != "" {
				to++
			}
			want := slices.Clone(block.Want)
			if !dashes {
				from += len(block.Commands) - 1
				to = from
				if len(want) > 0 {
					want = append([]string{"----"}, want...)
				}
			}
			lines = slices.Replace(lines, from, to, want...)
		}
	}
	return strings.Join(lines, "\n")
}
