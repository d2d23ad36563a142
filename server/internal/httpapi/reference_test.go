package httpapi_test

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/mailboxmq/mailbox/internal/testing/golden"
)

// A reference is what the page of all requests shows of api/openapi.yaml.
type reference struct {
	Paths      yaml.Node // in the order of the document
	Components struct {
		Parameters map[string]referenceParameter
		Responses  map[string]referenceContent
		Schemas    map[string]referenceSchema
	}
}

type referenceRequest struct {
	Summary, Description string
	Operation            string `yaml:"x-capability"`
	Parameters           []referenceParameter
	RequestBody          referenceContent `yaml:"requestBody"`
	Responses            map[string]referenceContent
}

type referenceParameter struct {
	Ref                   string `yaml:"$ref"`
	Name, In, Description string
	Required              bool
	Schema                referenceSchema
}

type referenceContent struct {
	Ref         string `yaml:"$ref"`
	Description string
	Content     map[string]struct{ Schema referenceSchema }
}

type referenceSchema struct {
	Ref               string `yaml:"$ref"`
	Type, Description string
	Enum              []string
	Format            string
	Minimum, Maximum  *float64
	Default           any
	Deprecated        bool
	Properties        yaml.Node // in the order of the document
	Required          []string
	Items             *referenceSchema
	Additional        yaml.Node         `yaml:"additionalProperties"`
	OneOf             []referenceSchema `yaml:"oneOf"`
}

// TestHTTPReferenceIsCurrent writes docs/http-reference.md with -update.
func TestHTTPReferenceIsCurrent(t *testing.T) {
	text, err := os.ReadFile("../../../api/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var document reference
	if err := yaml.Unmarshal(text, &document); err != nil {
		t.Fatal(err)
	}
	page := referencePage{t: t, document: &document}
	golden.Match(t, "../../../docs/http-reference.md", []byte(page.write()))
}

type referencePage struct {
	t        *testing.T
	document *reference
	answers  bool // the fields are those of an answer, where none is missing
	text     strings.Builder
}

func (p *referencePage) add(format string, arguments ...any) {
	p.text.WriteString(spaces.ReplaceAllString(fmt.Sprintf(format, arguments...), " $1"))
}

var spaces = regexp.MustCompile(` {2,}(\||\n)`)

func (p *referencePage) write() string {
	p.add("# HTTP reference\n\n<!-- Written by go test ./server/internal/httpapi -update from api/openapi.yaml. Do not edit. -->\n\n")
	p.add("Every request of the HTTP API. [HTTP by example](http.md) shows how to begin, and [errors.md](errors.md) has the codes of errors.\n")
	p.add("A request is read strictly: a field that is unknown, given twice or of another type is `E_SCHEMA`. Answers may gain fields.\n\n")
	p.add("| request | what it does | operation |\n|---|---|---|\n")
	for path, requests := range pairs[yaml.Node](p.t, &p.document.Paths) {
		for method, r := range pairs[referenceRequest](p.t, &requests) {
			name := strings.ToUpper(method) + " " + path
			p.add("| [`%s`](#%s) | %s | %s |\n", name, anchor(name), cell(r.Summary), code(r.Operation))
		}
	}
	for path, requests := range pairs[yaml.Node](p.t, &p.document.Paths) {
		for method, r := range pairs[referenceRequest](p.t, &requests) {
			p.request(strings.ToUpper(method)+" "+path, &r)
		}
	}
	p.add("\n## Types\n")
	for _, name := range slices.Sorted(maps.Keys(p.document.Components.Schemas)) {
		schema := p.document.Components.Schemas[name]
		p.add("\n### %s\n\n", name)
		if schema.Properties.IsZero() {
			p.add("%s. %s\n", p.typeOf(&schema), limits(&schema)+schema.Description)
			continue
		}
		p.add("%s", paragraph(schema.Description))
		p.fields(&schema)
	}
	return p.text.String()
}

// request describes one request, and what answers it.
func (p *referencePage) request(name string, r *referenceRequest) {
	p.add("\n## `%s`\n\n%s%s", name, paragraph(strings.TrimSuffix(r.Summary, ".")+"."), paragraph(r.Description))
	if len(r.Parameters) > 0 {
		p.add("| parameter | where | type | |\n|---|---|---|---|\n")
		for _, parameter := range r.Parameters {
			if parameter.Ref != "" {
				parameter = p.document.Components.Parameters[last(parameter.Ref)]
			}
			p.add("| %s | %s | %s | %s |\n", code(parameter.Name), parameter.In, p.typeOf(&parameter.Schema), p.must(parameter.Required)+limits(&parameter.Schema)+cell(cmp.Or(parameter.Description, parameter.Schema.Description)))
		}
		p.add("\n")
	}
	p.content("Request", &r.RequestBody)
	if answer := r.Responses["200"]; len(answer.Content) > 0 {
		p.answers = true
		p.content("Answer", &answer)
		p.answers = false
	}
	p.add("| status | |\n|---|---|\n")
	for _, status := range slices.Sorted(maps.Keys(r.Responses)) {
		answer := r.Responses[status]
		if answer.Ref != "" {
			answer = p.document.Components.Responses[last(answer.Ref)]
		}
		p.add("| %s | %s |\n", status, cell(answer.Description))
	}
}

// content describes a body.
func (p *referencePage) content(what string, body *referenceContent) {
	for _, kind := range slices.Sorted(maps.Keys(body.Content)) {
		schema := body.Content[kind].Schema
		p.add("%s, `%s`", what, kind)
		if schema.Properties.IsZero() {
			p.add(": %s.\n\n%s", p.typeOf(&schema), paragraph(schema.Description))
			continue
		}
		p.add(":\n\n")
		p.fields(&schema)
		p.add("\n")
	}
}

// fields is the table of the fields of an object, those of objects in it included.
func (p *referencePage) fields(schema *referenceSchema) {
	p.add("| field | type | |\n|---|---|---|\n")
	p.rows("", schema)
}

func (p *referencePage) rows(prefix string, schema *referenceSchema) {
	for name, field := range pairs[referenceSchema](p.t, &schema.Properties) {
		deprecated := ""
		if field.Deprecated {
			deprecated = "Deprecated. "
		}
		p.add("| %s | %s | %s |\n", code(prefix+name), p.typeOf(&field), p.must(slices.Contains(schema.Required, name))+deprecated+limits(&field)+cell(field.Description))
		if field.Items != nil {
			p.rows(prefix+name+"[].", field.Items)
		}
		p.rows(prefix+name+".", &field)
	}
}

// typeOf describes the type of a value, with links to those that have a name.
func (p *referencePage) typeOf(schema *referenceSchema) string {
	switch {
	case schema.Ref != "":
		name := last(schema.Ref)
		return "[" + name + "](#" + strings.ToLower(name) + ")"
	case len(schema.OneOf) > 0:
		var all []string
		for i := range schema.OneOf {
			all = append(all, p.typeOf(&schema.OneOf[i]))
		}
		return strings.Join(all, " or ")
	case schema.Items != nil:
		return "list of " + p.typeOf(schema.Items)
	case schema.Type == "object" && schema.Additional.Kind == yaml.MappingNode:
		var values referenceSchema
		if err := schema.Additional.Decode(&values); err != nil {
			p.t.Error(err)
		}
		return "map of " + p.typeOf(&values)
	}
	return strings.TrimSpace(cmp.Or(schema.Type, "any") + " " + schema.Format)
}

// limits says which values are allowed.
func limits(schema *referenceSchema) (text string) {
	if len(schema.Enum) > 0 {
		text = "`" + strings.Join(schema.Enum, "`, `") + "`. "
	}
	switch {
	case schema.Minimum != nil && schema.Maximum != nil:
		text += fmt.Sprintf("%g to %g. ", *schema.Minimum, *schema.Maximum)
	case schema.Minimum != nil && *schema.Minimum != 0:
		text += fmt.Sprintf("At least %g. ", *schema.Minimum)
	case schema.Maximum != nil:
		text += fmt.Sprintf("At most %g. ", *schema.Maximum)
	}
	if schema.Default != nil {
		text += fmt.Sprintf("Default: `%v`. ", schema.Default)
	}
	return text
}

func (p *referencePage) must(required bool) string {
	if required && !p.answers {
		return "Required. "
	}
	return ""
}

func code(text string) string {
	if text == "" {
		return ""
	}
	return "`" + text + "`"
}

// cell is a text as part of a table.
func cell(text string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(text), " "), "|", `\|`)
}

func paragraph(text string) string {
	if text == "" {
		return ""
	}
	return strings.TrimSpace(text) + "\n\n"
}

func last(ref string) string { return ref[strings.LastIndexByte(ref, '/')+1:] }

// anchor is the address of a heading within a page.
func anchor(heading string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '_', r == '-':
			return r
		case r == ' ':
			return '-'
		}
		return -1
	}, strings.ToLower(heading))
}

// pairs yields what a mapping has, in the order of the document.
func pairs[T any](t *testing.T, mapping *yaml.Node) func(yield func(string, T) bool) {
	return func(yield func(string, T) bool) {
		for i := 0; i+1 < len(mapping.Content); i += 2 {
			var value T
			if err := mapping.Content[i+1].Decode(&value); err != nil {
				t.Error(err)
			}
			if !yield(mapping.Content[i].Value, value) {
				return
			}
		}
	}
}
