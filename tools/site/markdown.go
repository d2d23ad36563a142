package main

import (
	"bytes"
	"errors"
	"fmt"
	"html/template"
	"io"
	"regexp"
	"strings"
	"unicode"

	"github.com/alecthomas/chroma/v2"
	chromahtml "github.com/alecthomas/chroma/v2/formatters/html"
	"github.com/alecthomas/chroma/v2/lexers"
	"github.com/alecthomas/chroma/v2/styles"
	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	extast "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/renderer"
	"github.com/yuin/goldmark/renderer/html"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"
)

// anchors gives headings the ids that links in the source tree use: lower case, blanks as
// dashes, without punctuation.
type anchors map[string]bool

func (a anchors) Generate(value []byte, _ ast.NodeKind) []byte {
	var id strings.Builder
	for _, r := range strings.ToLower(string(value)) {
		switch {
		case r == ' ':
			id.WriteByte('-')
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
			id.WriteRune(r)
		}
	}
	unique := id.String()
	for n := 1; a[unique]; n++ {
		unique = fmt.Sprintf("%s-%d", id.String(), n)
	}
	a[unique] = true
	return []byte(unique)
}

func (a anchors) Put(value []byte) { a[string(value)] = true }

var converter = goldmark.New(
	goldmark.WithExtensions(extension.GFM),
	goldmark.WithParserOptions(parser.WithAutoHeadingID()),
	goldmark.WithRendererOptions(renderer.WithNodeRenderers(util.Prioritized(codeRenderer{}, 100)), html.WithUnsafe()),
)

var markdownLink = regexp.MustCompile(`\]\(([^()\s]+)\)`)

// convert fills a page from its Markdown.
func (s *site) convert(p *page, source []byte) error {
	document := converter.Parser().Parse(text.NewReader(source), parser.WithContext(parser.NewContext(parser.WithIDs(anchors{}))))
	var wrong []error
	follow := func(link []byte, extension string) []byte {
		to, err := s.follow(p, string(link), extension)
		if err != nil {
			wrong = append(wrong, err)
		}
		return []byte(to)
	}
	err := ast.Walk(document, func(node ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := node.(type) {
		case *ast.Link:
			n.Destination = follow(n.Destination, ".html")
		case *ast.Image:
			n.Destination = follow(n.Destination, ".html")
		case *ast.Heading:
			id, _ := n.AttributeString("id")
			heading := plain(n, source)
			if n.Level == 1 && p.title == "" {
				p.title = heading
			}
			p.parts = append(p.parts, part{level: n.Level, heading: heading, id: string(id.([]byte))})
		case *ast.Paragraph, *ast.TextBlock, *extast.TableCell, *ast.FencedCodeBlock:
			if len(p.parts) > 0 {
				last := &p.parts[len(p.parts)-1]
				last.text = strings.TrimSpace(last.text + " " + plain(n, source))
				if p.summary == "" && node.Kind() == ast.KindParagraph {
					p.summary = plain(n, source)
				}
			}
		}
		return ast.WalkContinue, nil
	})
	if err := errors.Join(append(wrong, err)...); err != nil {
		return err
	}
	if p.title == "" {
		return errors.New("no title")
	}
	var out bytes.Buffer
	if err := converter.Renderer().Render(&out, source, document); err != nil {
		return err
	}
	page := strings.NewReplacer("<table>", `<div class="scroll" tabindex="0"><table>`, "</table>", "</table></div>").Replace(out.String())
	p.html = template.HTML(page)
	p.markdown = markdownLink.ReplaceAllFunc(source, func(link []byte) []byte {
		to, err := s.follow(p, string(link[2:len(link)-1]), ".md")
		if err != nil {
			return link // code that looks like a link
		}
		return []byte("](" + to + ")")
	})
	return nil
}

// plain returns the text of a node.
func plain(node ast.Node, source []byte) string {
	var words strings.Builder
	_ = ast.Walk(node, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Text:
			words.Write(n.Segment.Value(source))
			if n.SoftLineBreak() {
				words.WriteByte(' ')
			}
		case *ast.String:
			words.Write(n.Value)
		case *ast.AutoLink:
			words.Write(n.Label(source))
		case *ast.FencedCodeBlock:
			words.Write(n.Lines().Value(source))
		}
		return ast.WalkContinue, nil
	})
	return strings.Join(strings.Fields(words.String()), " ")
}

// A codeRenderer writes code blocks with classes for their tokens.
type codeRenderer struct{}

func (codeRenderer) RegisterFuncs(register renderer.NodeRendererFuncRegisterer) {
	register.Register(ast.KindFencedCodeBlock, writeCode)
}

var formatter = chromahtml.New(chromahtml.WithClasses(true), chromahtml.PreventSurroundingPre(true))

func writeCode(w util.BufWriter, source []byte, node ast.Node, entering bool) (ast.WalkStatus, error) {
	if !entering {
		return ast.WalkContinue, nil
	}
	block := node.(*ast.FencedCodeBlock)
	language := string(block.Language(source))
	code := string(block.Lines().Value(source))
	fmt.Fprintf(w, `<div class="code" data-language="%s">`, template.HTMLEscapeString(language))
	if block.Info != nil {
		if _, file, ok := strings.Cut(string(block.Info.Value(source)), " "); ok {
			fmt.Fprintf(w, `<p class="file">%s</p>`, template.HTMLEscapeString(file))
		}
	}
	_, _ = w.WriteString(`<pre tabindex="0"><code>`)
	err := highlight(w, language, code)
	_, _ = w.WriteString("</code></pre></div>\n")
	return ast.WalkSkipChildren, err
}

func highlight(w io.Writer, language, code string) error {
	if language == "console" { // commands stand out, and their output does not
		for line := range strings.Lines(code) {
			class := "go"
			if strings.HasPrefix(line, "$ ") {
				class = "cmd"
			}
			if _, err := fmt.Fprintf(w, `<span class="%s">%s</span>`, class, template.HTMLEscapeString(line)); err != nil {
				return err
			}
		}
		return nil
	}
	lexer := lexers.Get(language)
	if lexer == nil {
		lexer = lexers.Fallback
	}
	tokens, err := chroma.Coalesce(lexer).Tokenise(nil, code)
	if err != nil {
		return err
	}
	return formatter.Format(w, styles.Fallback, tokens)
}
