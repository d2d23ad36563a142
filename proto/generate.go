//go:build ignore

// Command generate makes the Go code in gen of the proto files, and the page
// docs/grpc-reference.md. It is a protoc that needs nothing but Go:
//
//	go generate ./gen/...
//
// It compiles the files in this process and hands them to the plugins, which are
// pinned, with the compiler, in tools/proto.mod.
package main

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/bufbuild/protocompile"
	"github.com/bufbuild/protocompile/protoutil"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
)

// Where the proto files are, where the Go files go, and which plugins make them.
const (
	source = "proto"
	target = "gen"
	pins   = "-modfile=tools/proto.mod"
)

var plugins = []struct{ name, parameter string }{
	{"protoc-gen-go", "paths=source_relative"},
	{"protoc-gen-connect-go", "paths=source_relative,simple"},
}

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	names, err := protoFiles()
	if err != nil {
		return err
	}
	compiler := protocompile.Compiler{
		Resolver:       protocompile.WithStandardImports(&protocompile.SourceResolver{ImportPaths: []string{source}}),
		SourceInfoMode: protocompile.SourceInfoStandard, // comments go into the code
	}
	files, err := compiler.Compile(ctx, names...)
	if err != nil {
		return err
	}
	request := &pluginpb.CodeGeneratorRequest{FileToGenerate: names}
	added := make(map[string]bool)
	for _, file := range files {
		addWithImports(request, added, file)
	}
	for _, plugin := range plugins {
		if err := generate(ctx, plugin.name, plugin.parameter, request); err != nil {
			return fmt.Errorf("%s: %w", plugin.name, err)
		}
	}
	return writeReference(files)
}

// protoFiles returns the names of all proto files, in order.
func protoFiles() ([]string, error) {
	var names []string
	err := fs.WalkDir(os.DirFS(source), ".", func(name string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && filepath.Ext(name) == ".proto" {
			names = append(names, name)
		}
		return err
	})
	slices.Sort(names)
	return names, err
}

// addWithImports adds a file behind those that it imports, as plugins want it.
func addWithImports(request *pluginpb.CodeGeneratorRequest, added map[string]bool, file protoreflect.FileDescriptor) {
	if added[file.Path()] {
		return
	}
	added[file.Path()] = true
	imports := file.Imports()
	for i := range imports.Len() {
		addWithImports(request, added, imports.Get(i).FileDescriptor)
	}
	request.ProtoFile = append(request.ProtoFile, descriptor(file))
}

func descriptor(file protoreflect.FileDescriptor) *descriptorpb.FileDescriptorProto {
	return protoutil.ProtoFromFileDescriptor(file)
}

// generate runs a plugin and writes the files that it answers with.
func generate(ctx context.Context, plugin, parameter string, request *pluginpb.CodeGeneratorRequest) error {
	request.Parameter = proto.String(parameter)
	input, err := proto.Marshal(request)
	if err != nil {
		return err
	}
	command := exec.CommandContext(ctx, "go", "tool", pins, plugin)
	command.Stdin, command.Stderr = bytes.NewReader(input), os.Stderr
	output, err := command.Output()
	if err != nil {
		return err
	}
	var response pluginpb.CodeGeneratorResponse
	if err := proto.Unmarshal(output, &response); err != nil {
		return err
	}
	if response.Error != nil {
		return fmt.Errorf("%s", response.GetError())
	}
	for _, file := range response.GetFile() {
		name := filepath.Join(target, filepath.FromSlash(file.GetName()))
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(name, []byte(file.GetContent()), 0o644); err != nil {
			return err
		}
	}
	return nil
}
