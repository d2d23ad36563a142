package main

import (
	"bytes"
	"fmt"
	"net/url"
	"path"
	"slices"
	"strings"

	"golang.org/x/net/html"
)

// A document is what the check of links knows of a file of HTML.
type document struct {
	ids   map[string]bool
	links []string
}

// deadLinks returns the links and pictures of the written pages that lead to no file or no
// element. Links to other sites are not followed.
func (s *site) deadLinks() []string {
	documents := make(map[string]document)
	for name, content := range s.files {
		if strings.HasSuffix(name, ".html") {
			documents[name] = readDocument(content)
		}
	}
	var dead []string
	for name, d := range documents {
		for _, link := range d.links {
			if problem := s.problem(documents, name, link); problem != "" {
				dead = append(dead, fmt.Sprintf("%s: %s: %s", name, link, problem))
			}
		}
	}
	slices.Sort(dead)
	return slices.Compact(dead)
}

func (s *site) problem(documents map[string]document, from, link string) string {
	u, err := url.Parse(link)
	if err != nil {
		return err.Error()
	}
	if u.Scheme != "" || u.Host != "" {
		return ""
	}
	target := from
	if u.Path != "" {
		target = path.Join(path.Dir(from), u.Path)
	}
	if target == "../versions.js" {
		return "" // of all versions
	}
	if s.files[target] == nil {
		return "no such file"
	}
	if u.Fragment != "" && !documents[target].ids[u.Fragment] {
		return "no such heading"
	}
	return ""
}

// readDocument returns the ids and the links of a page.
func readDocument(content []byte) document {
	d := document{ids: make(map[string]bool)}
	for tokens := html.NewTokenizer(bytes.NewReader(content)); ; {
		switch tokens.Next() {
		case html.ErrorToken:
			return d
		case html.StartTagToken, html.SelfClosingTagToken:
			for _, attribute := range tokens.Token().Attr {
				switch attribute.Key {
				case "id":
					d.ids[attribute.Val] = true
				case "href", "src":
					d.links = append(d.links, attribute.Val)
				}
			}
		}
	}
}
