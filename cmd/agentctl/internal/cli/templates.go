package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/printers"
	"k8s.io/client-go/util/jsonpath"
)

const (
	customColumns     = "custom-columns"
	customColumnsFile = "custom-columns-file"
)

// ObjectFormats are those in which objects of Kubernetes are printed, as kubectl has them;
// those with an argument as the help shows them.
func ObjectFormats() []string {
	return []string{
		"json", "yaml", "name",
		"jsonpath=TEMPLATE", "jsonpath-as-json=TEMPLATE", "jsonpath-file=FILE", "go-template=TEMPLATE",
		"go-template-file=FILE",
		customColumns + "=COLUMNS", customColumnsFile + "=FILE",
	}
}

// errNoArgument says that a format needs one.
var errNoArgument = errors.New("an argument is expected")

// templatePrinter returns the printer of a format with an argument, such as jsonpath=TEMPLATE.
func templatePrinter(format string) (printers.ResourcePrinter, error) {
	name, argument, _ := strings.Cut(format, "=")
	switch {
	case argument == "":
		return nil, fmt.Errorf("%s: %w", name, errNoArgument)
	case name == customColumns:
		return newColumnPrinter(strings.Split(argument, ","))
	case name == customColumnsFile:
		content, err := os.ReadFile(argument) //nolint:gosec // the caller's own choice
		if err != nil {
			return nil, err
		}
		return columnsOfFile(content)
	}
	return genericclioptions.NewKubeTemplatePrintFlags().ToPrinter(format)
}

// columnsOfFile reads two lines: the headers, and below each the path of its column, as for
// kubectl's custom-columns-file.
func columnsOfFile(content []byte) (printers.ResourcePrinter, error) {
	lines := strings.Split(strings.TrimSpace(string(content)), "\n")
	if len(lines) != 2 {
		return nil, fmt.Errorf("two lines are expected, the headers and their paths: there are %d", len(lines))
	}
	headers, paths := strings.Fields(lines[0]), strings.Fields(lines[1])
	if len(headers) != len(paths) {
		return nil, fmt.Errorf("%d headers have %d paths", len(headers), len(paths))
	}
	columns := make([]string, len(headers))
	for i := range headers {
		columns[i] = headers[i] + ":" + paths[i]
	}
	return newColumnPrinter(columns)
}

// columnPrinter prints a line of columns for each object, and their headers first. kubectl's
// own is in a package that brings 500 others along.
type columnPrinter struct {
	headers []string
	paths   []*jsonpath.JSONPath
	begun   bool
}

// newColumnPrinter takes columns of the form HEADER:PATH.
func newColumnPrinter(columns []string) (*columnPrinter, error) {
	p := &columnPrinter{}
	for _, column := range columns {
		header, path, ok := strings.Cut(column, ":")
		if !ok || header == "" || path == "" {
			return nil, fmt.Errorf("column %q: HEADER:PATH is expected, such as NAME:.metadata.name", column)
		}
		parsed := jsonpath.New(header).AllowMissingKeys(true)
		if err := parsed.Parse("{" + relaxed(path) + "}"); err != nil {
			return nil, fmt.Errorf("column %q: %w", column, err)
		}
		p.headers, p.paths = append(p.headers, header), append(p.paths, parsed)
	}
	return p, nil
}

// relaxed is a path without the braces and the dollar that it may have, and with the dot that
// it may lack.
func relaxed(path string) string {
	if strings.HasPrefix(path, "{") && strings.HasSuffix(path, "}") {
		path = path[1 : len(path)-1]
	}
	path = strings.TrimPrefix(path, "$")
	if !strings.HasPrefix(path, ".") && !strings.HasPrefix(path, "[") {
		path = "." + path
	}
	return path
}

// PrintObj implements printers.ResourcePrinter.
func (p *columnPrinter) PrintObj(obj runtime.Object, w io.Writer) error {
	tabs := printers.GetNewTabWriter(w)
	if !p.begun {
		p.begun = true
		if _, err := fmt.Fprintln(tabs, strings.Join(p.headers, "\t")); err != nil {
			return err
		}
	}
	objects := []runtime.Object{obj}
	if meta.IsListType(obj) {
		var err error
		if objects, err = meta.ExtractList(obj); err != nil {
			return err
		}
	}
	for _, o := range objects {
		if err := p.line(tabs, o); err != nil {
			return err
		}
	}
	return tabs.Flush()
}

func (p *columnPrinter) line(w io.Writer, obj runtime.Object) error {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return err
	}
	cells := make([]string, len(p.paths))
	for i, path := range p.paths {
		found, err := path.FindResults(content)
		if err != nil {
			return fmt.Errorf("column %s: %w", p.headers[i], err)
		}
		var texts []string
		for _, values := range found {
			for _, value := range values {
				if value.IsValid() {
					texts = append(texts, fmt.Sprint(value.Interface()))
				}
			}
		}
		if cells[i] = strings.Join(texts, ","); cells[i] == "" {
			cells[i] = "<none>"
		}
	}
	_, err = fmt.Fprintln(w, strings.Join(cells, "\t"))
	return err
}
