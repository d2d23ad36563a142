// Command site builds the documentation site from a source tree:
//
//	go run . -source ../.. -version v0.1.0 -out ../../dist/site
//
// The pages of docs/ become HTML in a folder named after the version, beside the same pages
// as Markdown, llms.txt and a search index. docs/index.md is the first page, and its lists are
// the navigation. All links are relative, so that the site works under any address and from
// files. The build fails for a link that leads nowhere and for a page that the navigation lacks.
package main

import (
	"bytes"
	"embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"html/template"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

//go:embed assets
var assets embed.FS

var layout = template.Must(template.ParseFS(assets, "assets/page.html"))

func main() {
	source := flag.String("source", ".", "the source `directory`")
	version := flag.String("version", "", "the `version` that the pages describe, and the folder they are in (default next)")
	out := flag.String("out", "dist/site", "the `directory` to write; folders of other versions in it stay")
	flag.Parse()
	if *version == "" {
		*version = "next"
	}
	if err := run(*source, *version, *out); err != nil {
		fmt.Fprintln(os.Stderr, "site:", err)
		os.Exit(1)
	}
}

// A site is what is written, by path.
type site struct {
	source  string
	version string
	pages   map[string]*page // by path in the source tree
	order   []*page          // as in the navigation
	nav     []section
	files   map[string][]byte // by path in the site
}

func run(source, version, out string) error {
	if version != filepath.Base(version) || strings.HasPrefix(version, ".") {
		return fmt.Errorf("-version: invalid value %q; want the name of a folder", version)
	}
	s := &site{source: source, version: version, pages: make(map[string]*page), files: make(map[string][]byte)}
	if err := s.load(); err != nil {
		return err
	}
	if err := s.render(); err != nil {
		return err
	}
	if dead := s.deadLinks(); len(dead) > 0 {
		return fmt.Errorf("%d dead links:\n%s", len(dead), strings.Join(dead, "\n"))
	}
	if err := s.write(out); err != nil {
		return err
	}
	fmt.Printf("%d pages in %s, 0 dead links\n", len(s.pages), filepath.Join(out, version))
	return nil
}

// render fills files.
func (s *site) render() error {
	for _, p := range s.pages {
		var html bytes.Buffer
		if err := layout.Execute(&html, s.view(p)); err != nil {
			return err
		}
		s.files[p.path+".html"] = html.Bytes()
		s.files[p.path+".md"] = p.markdown
	}
	for _, name := range []string{"site.js", "icon.svg"} {
		content, err := assets.ReadFile("assets/" + name)
		if err != nil {
			return err
		}
		s.files["assets/"+name] = content
	}
	css, err := s.style()
	if err != nil {
		return err
	}
	s.files["assets/site.css"] = css
	s.files["llms.txt"] = s.llms()
	s.files["assets/search.js"], err = s.index()
	return err
}

// style returns the style sheet, which begins with the design tokens of the console.
func (s *site) style() ([]byte, error) {
	console, err := os.ReadFile(filepath.Join(s.source, "server/internal/console/assets/console.css"))
	if err != nil {
		return nil, err
	}
	tokens, _, found := bytes.Cut(console, []byte("\n* {"))
	if !found {
		return nil, errors.New("console.css: the design tokens end with a line that begins with \"* {\"")
	}
	own, err := assets.ReadFile("assets/site.css")
	return slices.Concat(tokens, []byte("\n"), own), err
}

// llms returns llms.txt: what there is to read, as Markdown.
func (s *site) llms() []byte {
	var text strings.Builder
	first := s.order[0]
	fmt.Fprintf(&text, "# Mailbox %s\n\n> %s\n\nEvery page is here as Markdown too: its address with .md instead of .html.\n", s.version, first.summary)
	for _, section := range s.nav {
		fmt.Fprintf(&text, "\n## %s\n\n", section.Title)
		for _, p := range section.Pages {
			fmt.Fprintf(&text, "- [%s](%s.md): %s\n", p.title, p.path, p.summary)
		}
	}
	return []byte(text.String())
}

// index returns the search index: a script, because pages read from files may load no other
// data. Each row is a heading: its page's path and title, the heading, its id and its text.
func (s *site) index() ([]byte, error) {
	var rows [][5]string
	for _, p := range s.ordered() {
		if strings.HasPrefix(p.path, "files/") {
			continue
		}
		for _, part := range p.parts {
			rows = append(rows, [5]string{p.path + ".html", p.title, part.heading, part.id, part.text})
		}
	}
	text, err := json.Marshal(rows)
	return slices.Concat([]byte("searchIndex = "), text, []byte(";\n")), err
}

// ordered returns the pages of the navigation, and then the others by path.
func (s *site) ordered() []*page {
	all := slices.Clone(s.order)
	var others []*page
	for _, p := range s.pages {
		if !slices.Contains(s.order, p) {
			others = append(others, p)
		}
	}
	slices.SortFunc(others, func(a, b *page) int { return strings.Compare(a.path, b.path) })
	return append(all, others...)
}

// write replaces the folder of the version, and the list of versions.
func (s *site) write(out string) error {
	dir := filepath.Join(out, s.version)
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	for name, content := range s.files {
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(file, content, 0o644); err != nil {
			return err
		}
	}
	folders, err := filepath.Glob(filepath.Join(out, "*", "llms.txt"))
	if err != nil {
		return err
	}
	var versions []string
	for _, folder := range folders {
		versions = append(versions, filepath.Base(filepath.Dir(folder)))
	}
	slices.SortFunc(versions, func(a, b string) int { return compareVersions(b, a) })
	list, err := json.Marshal(versions)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(out, "versions.js"), slices.Concat([]byte("siteVersions = "), list, []byte(";\n")), 0o644); err != nil {
		return err
	}
	newest := versions[0]
	if newest == "next" && len(versions) > 1 {
		newest = versions[1]
	}
	refresh := fmt.Sprintf("<!doctype html>\n<meta charset=\"utf-8\">\n<title>Mailbox</title>\n<meta http-equiv=\"refresh\" content=\"0; url=%s/index.html\">\n<a href=\"%[1]s/index.html\">Mailbox %[1]s</a>\n", newest)
	return os.WriteFile(filepath.Join(out, "index.html"), []byte(refresh), 0o644)
}

// compareVersions orders v0.9.0 before v0.10.0, and names such as next last.
func compareVersions(a, b string) int {
	var x, y [3]int
	_, errA := fmt.Sscanf(a, "v%d.%d.%d", &x[0], &x[1], &x[2])
	_, errB := fmt.Sscanf(b, "v%d.%d.%d", &y[0], &y[1], &y[2])
	if errA != nil || errB != nil {
		if (errA == nil) != (errB == nil) {
			return map[bool]int{true: -1, false: 1}[errA == nil]
		}
		return strings.Compare(a, b)
	}
	if c := slices.Compare(x[:], y[:]); c != 0 {
		return c
	}
	return -strings.Compare(a, b) // v1.0.0-rc.1 is older than v1.0.0
}

// relative returns a reference from one file of the site to another.
func relative(from, to string) string {
	return strings.Repeat("../", strings.Count(path.Clean(from), "/")) + to
}
