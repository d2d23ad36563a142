package tidy

import (
	"go/ast"
	"go/token"
	"iter"
	"path"
	"regexp"
	"strings"
	"unicode"
)

// A word is one word of a text, or of a name in camel case.
type word struct {
	text string
	line int
	// around is the text that the word stands in, and from its offset there.
	around string
	from   int
	// declared: the word is part of a name that Go code declares.
	declared bool
}

func (w word) isTopic() bool {
	lower := strings.ToLower(w.text)
	return lower == "topic" || lower == "topics"
}

// words yields the words that a file is judged by: all of its prose and, for
// Go, the names that it declares. Names that it merely uses are judged where
// they are declared.
func (t *Tree) words(name string) iter.Seq[word] {
	return func(yield func(word) bool) {
		line := 0
		for text := range strings.Lines(t.prose(name)) {
			line++
			for _, w := range splitWords(text) {
				w.line = line
				if !yield(w) {
					return
				}
			}
		}
		for _, f := range t.Go {
			if f.Path != name {
				continue
			}
			for _, declared := range declaredNames(f.Syntax) {
				for _, w := range splitWords(declared.Name) {
					w.line, w.declared = f.line(declared.Pos()), true
					if !yield(w) {
						return
					}
				}
			}
		}
	}
}

// splitWords splits a text into words: at everything that is not a letter, and
// where the case of a name in camel case changes.
func splitWords(text string) []word {
	var found []word
	start := -1
	flush := func(end int) {
		if start >= 0 {
			found = append(found, word{text: text[start:end], around: text, from: start})
		}
		start = -1
	}
	runes := []rune(text)
	offset := 0
	for i, r := range runes {
		switch {
		case !unicode.IsLetter(r):
			flush(offset)
		case start < 0:
			start = offset
		case unicode.IsUpper(r) && (unicode.IsLower(runes[i-1]) || i+1 < len(runes) && unicode.IsLower(runes[i+1])):
			flush(offset)
			start = offset
		}
		offset += len(string(r))
	}
	flush(offset)
	return found
}

// declaredNames returns the identifiers that a file declares: types, functions,
// methods, fields, parameters, variables, constants and labels.
func declaredNames(file *ast.File) []*ast.Ident {
	var found []*ast.Ident
	for node := range ast.Preorder(file) {
		switch n := node.(type) {
		case *ast.FuncDecl:
			found = append(found, n.Name)
		case *ast.TypeSpec:
			found = append(found, n.Name)
		case *ast.ValueSpec:
			found = append(found, n.Names...)
		case *ast.Field:
			found = append(found, n.Names...)
		case *ast.LabeledStmt:
			found = append(found, n.Label)
		case *ast.ImportSpec:
			if n.Name != nil {
				found = append(found, n.Name)
			}
		case *ast.RangeStmt:
			if n.Tok == token.DEFINE {
				found = appendDefined(found, n.Key, n.Value)
			}
		case *ast.AssignStmt:
			if n.Tok == token.DEFINE {
				found = appendDefined(found, n.Lhs...)
			}
		}
	}
	return found
}

// appendDefined adds those of the expressions that are names and are declared
// where they stand, and not merely assigned to.
func appendDefined(found []*ast.Ident, defined ...ast.Expr) []*ast.Ident {
	for _, expression := range defined {
		if name, ok := expression.(*ast.Ident); ok && (name.Obj == nil || name.Obj.Pos() == name.Pos()) {
			found = append(found, name)
		}
	}
	return found
}

// escapes are the sequences of a string that would glue a letter to a word.
var escapes = strings.NewReplacer(`\n`, "  ", `\t`, "  ", `\r`, "  ", `\"`, `" `)

// code fills the parts of a file that are not prose. It is neither a letter nor
// a space, so no word and no phrase reaches across it.
const code = '\x01'

// prose returns the text of a file with everything that is not prose filled
// with code, line by line as long as before: of Go, the comments and the
// strings; of protocol buffers, the comments; of a decision and of the
// changelog, all but what they quote; of others, everything.
func (t *Tree) prose(name string) string {
	text := t.Texts[name]
	switch path.Ext(name) {
	case ".go":
		for _, f := range t.Go {
			if f.Path == name {
				return goProse(f, text)
			}
		}
		return ""
	case ".proto":
		return protoComment.ReplaceAllStringFunc(text, func(line string) string {
			before, comment, _ := strings.Cut(line, "//")
			return fill(before) + "  " + comment
		})
	case ".lua":
		return strings.ReplaceAll(text, "--", "  ")
	case ".md":
		if strings.HasPrefix(name, decisionsFolder) || name == "CHANGELOG.md" {
			return quotation.ReplaceAllStringFunc(text, fill)
		}
		return text
	default:
		return strings.ReplaceAll(text, "#", " ")
	}
}

// protoComment finds the lines of a file of protocol buffers: all but the
// comments are names of the wire.
var protoComment = regexp.MustCompile(`(?m)^.+$`)

// quotation finds what a document quotes: blocks and spans of code, and text in
// quotation marks.
var quotation = regexp.MustCompile("(?s)```.*?```|`[^`\n]+`|\"[^\"]{1,200}\"")

// fill replaces all but the line ends, byte by byte.
func fill(text string) string {
	filled := []byte(text)
	for i, b := range filled {
		if b != '\n' {
			filled[i] = code
		}
	}
	return string(filled)
}

func goProse(f *GoFile, text string) string {
	prose := []byte(fill(text))
	put := func(from token.Pos, shown string) { copy(prose[f.set.Position(from).Offset:], shown) }
	for _, group := range f.Syntax.Comments {
		for i, comment := range group.List {
			shown := comment.Text
			if strings.HasPrefix(shown, "//") {
				shown = "  " + shown[2:]
			}
			put(comment.Pos(), shown)
			if i > 0 { // a sentence goes on from line to line
				from, to := f.set.Position(group.List[i-1].End()).Offset, f.set.Position(comment.Pos()).Offset
				for j := from; j < to; j++ {
					if prose[j] == code {
						prose[j] = ' '
					}
				}
			}
		}
	}
	for node := range ast.Preorder(f.Syntax) {
		if literal, ok := node.(*ast.BasicLit); ok && literal.Kind == token.STRING {
			shown := literal.Value
			if shown[0] == '"' {
				shown = escapes.Replace(shown)
			}
			put(literal.Pos(), shown)
		}
	}
	return string(prose)
}

// onWire reports whether the word topic names the field of the wire contract
// there: in the contract itself, in code that a document shows, or spelled as a
// field, a path or a caveat ("topic", {topic}, mbx:topic=). A name that Go or
// Lua declares is never on the wire, however its words are joined.
func (t *Tree) onWire(name, prose string, w word) bool {
	if strings.HasPrefix(name, "api/") {
		return true
	}
	if strings.HasSuffix(name, ".md") {
		if _, ok := proseLines(prose)[w.line]; !ok {
			return true
		}
	}
	if w.declared {
		return false
	}
	marks := "\"'`{}<>:=_$\\/"
	if strings.HasSuffix(name, ".lua") {
		marks = strings.ReplaceAll(marks, "_", "")
	}
	end := w.from + len(w.text)
	return w.from > 0 && strings.IndexByte(marks, w.around[w.from-1]) >= 0 ||
		end < len(w.around) && strings.IndexByte(marks, w.around[end]) >= 0
}

func lineOf(text string, offset int) int { return strings.Count(text[:offset], "\n") + 1 }
