package httpapi_test

import (
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/mailboxmq/mailbox/server/internal/httpapi"
)

type tree = map[string]any

func readDescription(t *testing.T) tree {
	t.Helper()
	text, err := os.ReadFile("../../../api/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var document tree
	if err := yaml.Unmarshal(text, &document); err != nil {
		t.Fatal(err)
	}
	return document
}

// at follows keys, and references on the way.
func at(t *testing.T, document, from tree, keys ...string) tree {
	t.Helper()
	for i := -1; i < len(keys); i++ {
		if i >= 0 {
			next, ok := from[keys[i]].(tree)
			if !ok {
				t.Fatalf("the description has no %s", strings.Join(keys[:i+1], " / "))
			}
			from = next
		}
		for {
			reference, ok := from["$ref"].(string)
			if !ok {
				break
			}
			from = at(t, document, document, strings.Split(strings.TrimPrefix(reference, "#/"), "/")...)
		}
	}
	return from
}

func TestOpenAPIDescribesEveryPath(t *testing.T) {
	document := readDescription(t)
	if document["openapi"] != "3.1.0" {
		t.Errorf("openapi is %v", document["openapi"])
	}
	described := make(map[string]bool)
	for path, methods := range document["paths"].(tree) {
		for method := range methods.(tree) {
			described[strings.ToUpper(method)+" "+path] = true
		}
	}
	for _, route := range httpapi.Routes() {
		name := route.Method + " " + route.Path
		if !described[name] {
			t.Errorf("%s is not described", name)
		}
		delete(described, name)
	}
	for name := range described {
		t.Errorf("%s is described and not served", name)
	}
}

func TestOpenAPIDescribesEveryRequest(t *testing.T) {
	document := readDescription(t)
	for _, route := range httpapi.Routes() {
		if _, raw := httpapi.QueryTypes[route.Method+" "+route.Path]; raw || route.Method != "POST" {
			continue
		}
		request, ok := httpapi.RequestTypes[route.Path]
		if !ok {
			t.Errorf("the request of %s is not listed in export_test.go", route.Path)
			continue
		}
		schema := at(t, document, document, "paths", route.Path, "post", "requestBody", "content", "application/json", "schema")
		compareObject(t, document, route.Path, schema, request)
	}
}

func TestOpenAPIDescribesEveryQuery(t *testing.T) {
	document := readDescription(t)
	for _, route := range httpapi.Routes() {
		operation := at(t, document, document, "paths", route.Path, strings.ToLower(route.Method))
		described := make(map[string]tree)
		parameters, _ := operation["parameters"].([]any)
		for _, p := range parameters {
			if parameter := at(t, document, p.(tree)); parameter["in"] == "query" {
				described[parameter["name"].(string)] = at(t, document, parameter, "schema")
			}
		}
		if read := httpapi.QueryTypes[route.Method+" "+route.Path]; read != nil {
			for _, field := range reflect.VisibleFields(read) {
				name := field.Tag.Get("json")
				if schema, ok := described[name]; ok {
					compareValue(t, document, route.Path+" "+name, schema, field.Type)
				} else if !field.Anonymous {
					t.Errorf("%s %s reads %s, which is not described", route.Method, route.Path, name)
				}
				delete(described, name)
			}
		}
		for name := range described {
			t.Errorf("%s %s does not read %s", route.Method, route.Path, name)
		}
	}
}

// compareObject compares a schema with the struct that is read.
func compareObject(t *testing.T, document tree, where string, schema tree, read reflect.Type) {
	t.Helper()
	if schema["type"] != "object" || schema["additionalProperties"] != false {
		t.Errorf("%s must be an object without further fields", where)
	}
	properties, _ := schema["properties"].(tree)
	names := make(map[string]reflect.Type)
	for _, field := range reflect.VisibleFields(read) {
		if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); !field.Anonymous {
			names[name] = field.Type
		}
	}
	if described, known := slices.Sorted(maps.Keys(properties)), slices.Sorted(maps.Keys(names)); !slices.Equal(described, known) {
		t.Errorf("%s: described are %q, read are %q", where, described, known)
		return
	}
	for name, fieldType := range names {
		compareValue(t, document, where+" "+name, at(t, document, properties[name].(tree)), fieldType)
	}
}

func compareValue(t *testing.T, document tree, where string, schema tree, read reflect.Type) {
	t.Helper()
	for read.Kind() == reflect.Pointer {
		read = read.Elem()
	}
	want := ""
	switch {
	case read == httpapi.DurationType, read.Kind() == reflect.Float64:
		want = "number"
	case read.Kind() == reflect.String, read == reflect.TypeFor[[]byte]():
		want = "string"
	case read.Kind() == reflect.Bool:
		want = "boolean"
	case read.Kind() == reflect.Int:
		want = "integer"
	case read.Kind() == reflect.Map:
		want = "object"
	case read.Kind() == reflect.Struct:
		compareObject(t, document, where, schema, read)
		return
	case read.Kind() == reflect.Slice:
		want = "array"
		if schema["type"] == want {
			compareValue(t, document, where+"[]", at(t, document, schema, "items"), read.Elem())
		}
	}
	if schema["type"] != want {
		t.Errorf("%s is described as %v and read as %s", where, schema["type"], want)
	}
}
