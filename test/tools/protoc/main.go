// Command protoc makes Go code from .proto files, with those of protoc's flags that
// our generate scripts use. It is protocompile, the compiler of buf, without the rest
// of buf, which takes longer to build than some servers.
//
//	go run ./test/tools/protoc -I . --go_out=. --go_opt=paths=source_relative a.proto
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"

	"github.com/bufbuild/protocompile"
	"github.com/bufbuild/protocompile/protoutil"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	context.AfterFunc(ctx, stop) // a second signal kills
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "protoc:", err)
		os.Exit(1)
	}
}

// plugin is a protoc-gen-<name> on the PATH.
type plugin struct {
	name    string
	out     string   // folder
	options []string // in the order given
}

// command is what the arguments ask for.
type command struct {
	imports []string // folders
	files   []string // relative to one of imports
	plugins []*plugin
}

func run(ctx context.Context, args []string) error {
	c, err := parse(args)
	if err != nil {
		return err
	}
	compiler := protocompile.Compiler{
		Resolver:       protocompile.WithStandardImports(&protocompile.SourceResolver{ImportPaths: c.imports}),
		SourceInfoMode: protocompile.SourceInfoStandard, // comments become comments
	}
	compiled, err := compiler.Compile(ctx, c.files...)
	if err != nil {
		return err
	}
	var all []*descriptorpb.FileDescriptorProto
	seen := map[string]bool{}
	for _, file := range compiled {
		all = withImports(all, file, seen)
	}
	for _, p := range c.plugins {
		if err := p.run(ctx, c.files, all); err != nil {
			return fmt.Errorf("protoc-gen-%s: %w", p.name, err)
		}
	}
	return nil
}

func parse(args []string) (command, error) {
	c := command{}
	of := func(name string) *plugin {
		for _, p := range c.plugins {
			if p.name == name {
				return p
			}
		}
		p := &plugin{name: name}
		c.plugins = append(c.plugins, p)
		return p
	}
	for i := 0; i < len(args); i++ {
		name, value, _ := strings.Cut(strings.TrimPrefix(args[i], "--"), "=")
		switch {
		case args[i] == "-I" && i+1 < len(args):
			i++
			c.imports = append(c.imports, args[i])
		case !strings.HasPrefix(args[i], "-"):
			c.files = append(c.files, args[i])
		case strings.HasSuffix(name, "_out"):
			of(strings.TrimSuffix(name, "_out")).out = value
		case strings.HasSuffix(name, "_opt"):
			p := of(strings.TrimSuffix(name, "_opt"))
			p.options = append(p.options, value)
		default:
			return command{}, fmt.Errorf("%s is none of -I DIR, --NAME_out=DIR, --NAME_opt=OPTION and FILE.proto", args[i])
		}
	}
	if len(c.files) == 0 || len(c.plugins) == 0 {
		return command{}, errors.New("give a file and a --NAME_out")
	}
	for _, p := range c.plugins {
		if p.out == "" {
			return command{}, fmt.Errorf("--%s_opt is given without --%s_out", p.name, p.name)
		}
	}
	return c, nil
}

// withImports appends what file imports, before file.
func withImports(all []*descriptorpb.FileDescriptorProto, file protoreflect.FileDescriptor, seen map[string]bool) []*descriptorpb.FileDescriptorProto {
	if seen[file.Path()] {
		return all
	}
	seen[file.Path()] = true
	for i := range file.Imports().Len() {
		all = withImports(all, file.Imports().Get(i).FileDescriptor, seen)
	}
	return append(all, protoutil.ProtoFromFileDescriptor(file))
}

// run writes what the plugin makes of files.
func (p *plugin) run(ctx context.Context, files []string, all []*descriptorpb.FileDescriptorProto) error {
	request, err := proto.Marshal(&pluginpb.CodeGeneratorRequest{
		FileToGenerate: files, Parameter: proto.String(strings.Join(p.options, ",")), ProtoFile: all,
	})
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "protoc-gen-"+p.name)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(request), os.Stderr
	answer, err := cmd.Output()
	if err != nil {
		return err
	}
	var response pluginpb.CodeGeneratorResponse
	if err := proto.Unmarshal(answer, &response); err != nil {
		return err
	}
	if response.Error != nil {
		return errors.New(response.GetError())
	}
	for _, file := range response.GetFile() {
		if err := os.WriteFile(filepath.Join(p.out, file.GetName()), []byte(file.GetContent()), 0o644); err != nil {
			return err
		}
	}
	return nil
}
