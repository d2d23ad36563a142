// Package markup makes HTML from Go values. It always escapes text and the values of attributes.
package markup

import (
	"bytes"
	"strings"
)

// A Node is an element, an attribute, a text, or several of them. A nil Node is nothing.
type Node interface {
	// attributes writes what belongs into the start tag of the element around, and content what comes
	// behind it.
	attributes(out *bytes.Buffer)
	content(out *bytes.Buffer)
}

// Write appends the HTML of a node.
func Write(out *bytes.Buffer, n Node) {
	if n != nil {
		n.content(out)
	}
}

// Doctype returns a whole document.
func Doctype(root Node) Node { return document{root} }

type document struct{ Node }

func (d document) content(out *bytes.Buffer) {
	out.WriteString("<!doctype html>")
	d.Node.content(out)
}

// El returns an element. Its attributes are among its children.
func El(name string, children ...Node) Node { return &element{name, children} }

type element struct {
	name     string
	children Group
}

func (*element) attributes(*bytes.Buffer) {}

func (e *element) content(out *bytes.Buffer) {
	out.WriteByte('<')
	out.WriteString(e.name)
	e.children.attributes(out)
	out.WriteByte('>')
	switch e.name {
	case "img", "input", "link", "meta":
		return // they have no content and no end tag
	}
	e.children.content(out)
	out.WriteString("</")
	out.WriteString(e.name)
	out.WriteByte('>')
}

// Attr returns an attribute.
func Attr(name, value string) Node { return &attribute{name: name, value: value} }

// flag returns an attribute without a value.
func flag(name string) Node { return &attribute{name: name, flag: true} }

type attribute struct {
	name, value string
	flag        bool
}

func (a *attribute) attributes(out *bytes.Buffer) {
	out.WriteByte(' ')
	out.WriteString(a.name)
	if a.flag {
		return
	}
	out.WriteString(`="`)
	escape(out, a.value)
	out.WriteByte('"')
}

func (*attribute) content(*bytes.Buffer) {}

// Text returns a text.
func Text(s string) Node { return text(s) }

type text string

func (text) attributes(*bytes.Buffer) {}

func (t text) content(out *bytes.Buffer) { escape(out, string(t)) }

// Browsers refuse a zero byte, or drop it.
var escaper = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&#34;", "'", "&#39;", "\x00", "\ufffd")

func escape(out *bytes.Buffer, s string) {
	_, _ = escaper.WriteString(out, s) // a buffer does not fail
}

// A Group is several nodes beside each other.
type Group []Node

func (g Group) attributes(out *bytes.Buffer) {
	for _, n := range g {
		if n != nil {
			n.attributes(out)
		}
	}
}

func (g Group) content(out *bytes.Buffer) {
	for _, n := range g {
		if n != nil {
			n.content(out)
		}
	}
}

// Map returns a node for each element.
func Map[T any](elements []T, node func(T) Node) Group {
	nodes := make(Group, len(elements))
	for i, e := range elements {
		nodes[i] = node(e)
	}
	return nodes
}

// If returns a node if a condition holds.
func If(condition bool, n Node) Node {
	if condition {
		return n
	}
	return nil
}

// Iff returns the node that a function makes if a condition holds.
func Iff(condition bool, n func() Node) Node {
	if condition {
		return n()
	}
	return nil
}
