package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// listed is what go list tells about one package.
type listed struct {
	ImportPath string
	Dir        string
	Export     string
	Imports    []string
	GoFiles    []string
}

// source is one file of product code. Its order in a package is that of its name.
type source struct {
	Name      string // inside the tree, with slashes
	Lines     int
	Generated bool // "Code generated … DO NOT EDIT.": typed, but not counted
	Syntax    *ast.File
}

// unit is a package of product code with its types.
type unit struct {
	Path    string // inside the tree
	Files   []*source
	Imports []string // other units, inside the tree
	Types   *types.Package
}

// tree is product code as a whole: every package of the module and of the module api
// but those below test/.
// It is read once and not changed.
type tree struct {
	Fset  *token.FileSet
	Info  *types.Info
	Units []*unit // by path
	files map[string]*source
}

// load reads, parses and types the product code of the module at root, for the system
// it runs on. Of packages of others only what their builds export is read.
func load(ctx context.Context, root string) (*tree, error) {
	module, err := moduleOf(ctx, root)
	if err != nil {
		return nil, err
	}
	packages, err := goList(ctx, root, "-json=ImportPath,Dir,Imports,GoFiles", "./...", module+"/api/...")
	if err != nil {
		return nil, err
	}
	product := make(map[string]listed)
	for _, p := range packages {
		if !strings.HasPrefix(p.ImportPath, module+"/test/") && len(p.GoFiles) > 0 {
			product[p.ImportPath] = p
		}
	}
	exported, err := exports(ctx, root, product)
	if err != nil {
		return nil, err
	}
	l := loader{
		root: root, module: module, product: product,
		tree: &tree{
			Fset: token.NewFileSet(),
			Info: &types.Info{
				Types:      make(map[ast.Expr]types.TypeAndValue),
				Defs:       make(map[*ast.Ident]types.Object),
				Uses:       make(map[*ast.Ident]types.Object),
				Implicits:  make(map[ast.Node]types.Object),
				Selections: make(map[*ast.SelectorExpr]*types.Selection),
			},
			files: make(map[string]*source),
		},
		done: make(map[string]*unit),
	}
	l.others = importer.ForCompiler(l.tree.Fset, "gc", func(path string) (io.ReadCloser, error) {
		if exported[path] == "" {
			return nil, fmt.Errorf("go list knows no build of %s", path)
		}
		return os.Open(exported[path])
	})
	for _, path := range slices.Sorted(maps.Keys(product)) {
		if _, err := l.unit(path); err != nil {
			return nil, err
		}
	}
	return l.tree, nil
}

// exports returns the files with what the packages of others export that product imports.
func exports(ctx context.Context, root string, product map[string]listed) (map[string]string, error) {
	others := make(map[string]bool)
	for _, p := range product {
		for _, path := range p.Imports {
			if _, ours := product[path]; !ours && path != "unsafe" {
				others[path] = true
			}
		}
	}
	exported := make(map[string]string)
	if len(others) == 0 {
		return exported, nil
	}
	args := append([]string{"-export", "-json=ImportPath,Export"}, slices.Sorted(maps.Keys(others))...)
	packages, err := goList(ctx, root, args...)
	for _, p := range packages {
		exported[p.ImportPath] = p.Export
	}
	return exported, err
}

// loader types packages of ours from their source, each after those it imports.
type loader struct {
	root, module string
	product      map[string]listed
	tree         *tree
	done         map[string]*unit
	others       types.Importer
}

// Import is what types.Importer asks.
func (l *loader) Import(path string) (*types.Package, error) {
	if path == "unsafe" {
		return types.Unsafe, nil
	}
	if _, ours := l.product[path]; !ours {
		return l.others.Import(path)
	}
	u, err := l.unit(path)
	if err != nil {
		return nil, err
	}
	return u.Types, nil
}

func (l *loader) unit(path string) (*unit, error) {
	if u := l.done[path]; u != nil {
		return u, nil
	}
	p := l.product[path]
	u := &unit{Path: strings.TrimPrefix(path, l.module+"/")}
	for _, imported := range p.Imports {
		if _, ours := l.product[imported]; ours {
			u.Imports = append(u.Imports, strings.TrimPrefix(imported, l.module+"/"))
		}
	}
	var syntax []*ast.File
	for _, name := range p.GoFiles {
		s, err := l.source(u.Path+"/"+name, filepath.Join(p.Dir, name))
		if err != nil {
			return nil, err
		}
		u.Files = append(u.Files, s)
		syntax = append(syntax, s.Syntax)
	}
	conf := types.Config{Importer: l}
	typed, err := conf.Check(path, l.tree.Fset, syntax, l.tree.Info)
	if err != nil {
		return nil, err
	}
	u.Types = typed
	l.done[path] = u
	l.tree.Units = append(l.tree.Units, u)
	slices.SortFunc(l.tree.Units, func(a, b *unit) int { return strings.Compare(a.Path, b.Path) })
	return u, nil
}

func (l *loader) source(name, file string) (*source, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	syntax, err := parser.ParseFile(l.tree.Fset, name, content, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	s := &source{Name: name, Lines: bytes.Count(content, []byte("\n")), Generated: ast.IsGenerated(syntax), Syntax: syntax}
	l.tree.files[name] = s
	return s, nil
}

// fileOf is the file of product code that a place is in, or nil.
func (t *tree) fileOf(pos token.Pos) *source {
	if !pos.IsValid() {
		return nil
	}
	return t.files[t.Fset.Position(pos).Filename]
}

// counted are the files of the unit that are written by hand.
func (u *unit) counted() []*source {
	return slices.DeleteFunc(slices.Clone(u.Files), func(s *source) bool { return s.Generated })
}

func moduleOf(ctx context.Context, root string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-m")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go list -m: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

func goList(ctx context.Context, root string, args ...string) ([]listed, error) {
	cmd := exec.CommandContext(ctx, "go", append([]string{"list"}, args...)...)
	cmd.Dir = root
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w\n%s", err, stderr.String())
	}
	var found []listed
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return found, nil
		} else if err != nil {
			return nil, fmt.Errorf("read what go list says: %w", err)
		}
		found = append(found, p)
	}
}
