package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// A page is a Markdown file of the source tree, or a file that one links to.
type page struct {
	source   string // its path in the source tree
	path     string // in the site, without an extension
	title    string
	label    string // in the navigation
	summary  string
	markdown []byte // with links between files of the site
	html     template.HTML
	parts    []part
}

// A part is what follows a heading.
type part struct {
	level             int
	heading, id, text string
}

// A section is a list of the navigation.
type section struct {
	Title string
	Pages []*page
}

// The pages outside docs.
const (
	first     = "docs/index.md"
	changelog = "CHANGELOG.md"
)

// load reads the pages, and those that they link to.
func (s *site) load() error {
	sources := []string{changelog}
	err := filepath.WalkDir(filepath.Join(s.source, "docs"), func(name string, entry fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(name, ".md") {
			name, err = filepath.Rel(s.source, name)
			sources = append(sources, filepath.ToSlash(name))
		}
		return err
	})
	if err != nil {
		return err
	}
	var texts [][]byte
	for _, source := range sources {
		text, err := s.read(source)
		if err != nil {
			return err
		}
		texts = append(texts, text)
		s.pages[source] = &page{source: source, path: sitePath(source)}
	}
	for i, source := range sources {
		if err := s.convert(s.pages[source], texts[i]); err != nil {
			return fmt.Errorf("%s: %w", source, err)
		}
	}
	return s.navigation(string(texts[slices.Index(sources, first)]))
}

func (s *site) read(source string) ([]byte, error) {
	return os.ReadFile(filepath.Join(s.source, filepath.FromSlash(source)))
}

// sitePath returns the path of a page in the site, without an extension.
func sitePath(source string) string {
	name, markdown := strings.CutSuffix(source, ".md")
	if inDocs, ok := strings.CutPrefix(name, "docs/"); ok {
		if path.Base(inDocs) == "README" {
			return path.Join(path.Dir(inDocs), "index")
		}
		return inDocs
	}
	if markdown {
		return strings.ToLower(name)
	}
	return "files/" + source
}

var (
	navHeading = regexp.MustCompile(`^## (.+)$`)
	navRow     = regexp.MustCompile(`^- \[(.+?)\]\((.+?)\): (.+)$`)
)

// navigation reads the lists of the first page.
func (s *site) navigation(text string) error {
	s.order = []*page{s.pages[first]}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if match := navHeading.FindStringSubmatch(line); match != nil {
			s.nav = append(s.nav, section{Title: match[1]})
		}
		match := navRow.FindStringSubmatch(line)
		if match == nil || len(s.nav) == 0 {
			continue
		}
		p := s.pages[path.Join("docs", match[2])]
		if p == nil {
			return fmt.Errorf("%s lists %s, which is not a page", first, match[2])
		}
		p.label, p.summary = match[1], match[3]
		list := &s.nav[len(s.nav)-1]
		list.Pages = append(list.Pages, p)
		s.order = append(s.order, p)
	}
	s.nav = slices.DeleteFunc(s.nav, func(l section) bool { return len(l.Pages) == 0 })
	var missing []error
	for source, p := range s.pages {
		if strings.HasSuffix(source, ".md") && !strings.HasPrefix(source, "docs/decisions/0") && !slices.Contains(s.order, p) {
			missing = append(missing, fmt.Errorf("%s is not listed in %s", source, first))
		}
	}
	return errors.Join(missing...)
}

// follow returns the path that a link of a page leads to, with an extension. Files outside
// docs become pages.
func (s *site) follow(p *page, link, extension string) (string, error) {
	if strings.Contains(link, "://") || strings.HasPrefix(link, "mailto:") || strings.HasPrefix(link, "#") {
		return link, nil
	}
	target, fragment, hasFragment := strings.Cut(link, "#")
	source := path.Join(path.Dir(p.source), target)
	info, err := os.Stat(filepath.Join(s.source, filepath.FromSlash(source)))
	if err != nil {
		return "", fmt.Errorf("links to %s: %w", link, err)
	}
	if info.IsDir() {
		source += "/README.md"
	}
	to := s.pages[source]
	switch {
	case to != nil:
	case slices.Contains([]string{".png", ".svg"}, path.Ext(source)):
		content, err := s.read(source)
		name := strings.TrimPrefix(source, "docs/")
		s.files[name] = content
		return relative(p.path, name), err
	default:
		if to, err = s.file(source); err != nil {
			return "", fmt.Errorf("links to %s: %w", link, err)
		}
	}
	result := relative(p.path, to.path+extension)
	if hasFragment {
		result += "#" + fragment
	}
	return result, nil
}

// file makes a page that shows a file of the source tree.
func (s *site) file(source string) (*page, error) {
	content, err := s.read(source)
	if err != nil {
		return nil, err
	}
	language := map[string]string{".service": "ini", ".yml": "yaml"}[path.Ext(source)]
	if language == "" {
		language = strings.TrimPrefix(path.Ext(source), ".")
	}
	p := &page{source: source, path: sitePath(source), summary: "A file of the source tree."}
	s.pages[source] = p
	fence := "````"
	return p, s.convert(p, slices.Concat([]byte("# "+source+"\n\n"+fence+language+"\n"), bytes.TrimRight(content, "\n"), []byte("\n"+fence+"\n")))
}

// A view is what the layout shows.
type view struct {
	*site
	Page       *page
	Root       string
	Prev, Next *page
}

func (s *site) view(p *page) view {
	v := view{site: s, Page: p, Root: relative(p.path, "")}
	if i := slices.Index(s.order, p); i >= 0 {
		if i > 0 {
			v.Prev = s.order[i-1]
		}
		if i+1 < len(s.order) {
			v.Next = s.order[i+1]
		}
	}
	return v
}

// What the layout reads.
func (v view) Version() string       { return v.version }
func (v view) Nav() []section        { return v.nav }
func (p *page) Title() string        { return p.title }
func (p *page) Label() string        { return cmp.Or(p.label, p.title) }
func (p *page) Summary() string      { return p.summary }
func (p *page) Path() string         { return p.path }
func (p *page) HTML() template.HTML  { return p.html }
func (p part) Heading() string       { return p.heading }
func (p part) ID() string            { return p.id }
func (p part) Level() int            { return p.level }
func (v view) Link(to *page) string  { return v.Root + to.path + ".html" }
func (v view) Markdown() string      { return path.Base(v.Page.path) + ".md" }
func (v view) Current(to *page) bool { return v.Page == to }

// Contents returns the headings of a page that its list of contents has.
func (p *page) Contents() []part {
	return slices.DeleteFunc(slices.Clone(p.parts), func(h part) bool { return h.level != 2 && h.level != 3 })
}
