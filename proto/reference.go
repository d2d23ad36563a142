//go:build ignore

package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/bufbuild/protocompile/linker"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// reference is the page of all services and messages.
const reference = "docs/grpc-reference.md"

// writeReference writes the page from the comments in the proto files.
func writeReference(files linker.Files) error {
	var page strings.Builder
	page.WriteString("# gRPC reference\n\n<!-- Written by make generate from the files in proto. Do not edit. -->\n\n")
	page.WriteString("Every service and message of the gRPC API, which Connect and gRPC-Web have too. [names.md](names.md) says what the names of the other protocols are, and [errors.md](errors.md) has the codes of errors.\n")
	for _, file := range files {
		services := file.Services()
		for i := range services.Len() {
			writeService(&page, services.Get(i))
		}
	}
	page.WriteString("\n## Messages\n")
	for _, file := range files {
		messages := file.Messages()
		for i := range messages.Len() {
			writeMessage(&page, messages.Get(i))
		}
	}
	return os.WriteFile(reference, []byte(page.String()), 0o644)
}

func writeService(page *strings.Builder, service protoreflect.ServiceDescriptor) {
	fmt.Fprintf(page, "\n## %s\n\n%s\n\n| method | request | answer | |\n|---|---|---|---|\n", service.FullName(), comment(service))
	methods := service.Methods()
	for i := range methods.Len() {
		m := methods.Get(i)
		fmt.Fprintf(page, "| `%s` | %s | %s | %s |\n", m.Name(), stream(m.IsStreamingClient())+link(m.Input()), stream(m.IsStreamingServer())+link(m.Output()), cell(comment(m)))
	}
}

func writeMessage(page *strings.Builder, message protoreflect.MessageDescriptor) {
	if message.IsMapEntry() {
		return
	}
	fmt.Fprintf(page, "\n### %s\n\n%s\n", name(message), comment(message))
	fields := message.Fields()
	if fields.Len() > 0 {
		page.WriteString("\n| field | number | type | |\n|---|---|---|---|\n")
	}
	for i := range fields.Len() {
		f := fields.Get(i)
		fmt.Fprintf(page, "| `%s` | %d | %s | %s |\n", f.Name(), f.Number(), typeOf(f), cell(comment(f)))
	}
	nested := message.Messages()
	for i := range nested.Len() {
		writeMessage(page, nested.Get(i))
	}
}

func typeOf(f protoreflect.FieldDescriptor) string {
	switch {
	case f.IsMap():
		return "map of " + f.MapKey().Kind().String() + " to " + typeOf(f.MapValue())
	case f.IsList():
		return "list of " + single(f)
	case f.HasOptionalKeyword():
		return "optional " + single(f)
	case f.ContainingOneof() != nil:
		return single(f) + ", one of `" + string(f.ContainingOneof().Name()) + "`"
	}
	return single(f)
}

func single(f protoreflect.FieldDescriptor) string {
	switch {
	case f.Message() != nil:
		return link(f.Message())
	case f.Enum() != nil:
		return string(f.Enum().Name())
	}
	return f.Kind().String()
}

// link is the name of a message with its address, if it is ours.
func link(message protoreflect.MessageDescriptor) string {
	if !strings.HasPrefix(string(message.FullName()), "mailbox.") {
		return string(message.FullName())
	}
	return "[" + name(message) + "](#" + strings.ToLower(strings.ReplaceAll(name(message), ".", "")) + ")"
}

// name is that of a message within its package.
func name(message protoreflect.MessageDescriptor) string {
	return strings.TrimPrefix(string(message.FullName()), string(message.ParentFile().Package())+".")
}

func stream(streams bool) string {
	if streams {
		return "stream of "
	}
	return ""
}

func comment(d protoreflect.Descriptor) string {
	return strings.Join(strings.Fields(d.ParentFile().SourceLocations().ByDescriptor(d).LeadingComments), " ")
}

// cell is a text as part of a table.
func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }
