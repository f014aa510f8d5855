package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/printers"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/argomesh/argomesh/api/v1alpha1"
)

// Output is the choice of -o. Empty means a table, or one line that says what was
// done.
type Output struct {
	OneOf
	NoHeaders bool
	// AllNamespaces says that tables name the namespace.
	AllNamespaces bool

	template printers.ResourcePrinter // of a format with an argument
}

// Set implements pflag.Value. A format with an argument is read here, so that what is wrong
// with that is told before anything is done.
func (o *Output) Set(s string) error {
	name, _, has := strings.Cut(s, "=")
	if !has || !slices.ContainsFunc(o.Allowed, func(a string) bool { return strings.HasPrefix(a, name+"=") }) {
		return o.OneOf.Set(s)
	}
	p, err := templatePrinter(s)
	if err != nil {
		return fmt.Errorf("%s: %s", name, OneLine(err))
	}
	o.Value, o.template = s, p
	return nil
}

// NewOutput returns the value of --output: a table, unless one of formats is asked for.
func NewOutput(formats ...string) *Output {
	return &Output{OneOf: OneOf{Allowed: formats}}
}

// AddFlag adds --output.
func (o *Output) AddFlag(cmd *cobra.Command) {
	cmd.Flags().VarP(o, "output", "o", "print as "+JoinOr(o.Allowed))
	Register(cmd, "output", o.complete)
}

// IsTable reports whether the server's columns are printed.
func (o *Output) IsTable() bool { return o.Value == "" || o.Value == "wide" }

// Done prints an object after something was done to it.
func (o *Output) Done(w io.Writer, obj *unstructured.Unstructured, what string) error {
	if o.Value == "" {
		return (&printers.NamePrinter{Operation: what}).PrintObj(obj, w)
	}
	return o.Object(w, obj)
}

// Object prints an object or a list in a form that is no table.
func (o *Output) Object(w io.Writer, obj runtime.Object) error {
	var p printers.ResourcePrinter
	switch {
	case o.template != nil:
		p = o.template
	case o.Value == "json":
		p = &printers.JSONPrinter{}
	case o.Value == "yaml":
		p = yamlPrinter{}
	case o.Value == "name":
		p = &printers.NamePrinter{ShortOutput: true}
	default:
		return fmt.Errorf("output %q prints no objects", o.Value) // unreachable: the flag knows what is allowed
	}
	return (&printers.OmitManagedFieldsPrinter{Delegate: p}).PrintObj(obj, w)
}

// yamlPrinter prints YAML. It takes what that of kubectl fails at: characters in a text that
// YAML has only as their numbers.
type yamlPrinter struct{}

// PrintObj implements printers.ResourcePrinter.
func (yamlPrinter) PrintObj(obj runtime.Object, w io.Writer) error {
	var text bytes.Buffer
	if err := (&printers.JSONPrinter{}).PrintObj(obj, &plain{w: &text}); err != nil {
		return err
	}
	encoded, err := yaml.JSONToYAML(text.Bytes())
	if err != nil {
		return err
	}
	// YAML has some characters as they are that turn the text of a terminal around. JSON is YAML.
	if bytes.ContainsFunc(encoded, func(r rune) bool { return r != '\n' && obeyed(r) }) {
		encoded = text.Bytes()
	}
	_, err = beneath(w).Write(encoded)
	return err
}

// tableOf is the Accept header that asks the server for the columns the CRD
// defines, as kubectl does.
const tableOf = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"

// Table asks the server for Agents as a table: all that match opts, or one when
// name is not empty.
func (h *Hub) Table(ctx context.Context, name string, opts metav1.ListOptions) (*metav1.Table, error) {
	req := h.TableRequest(opts)
	if name != "" {
		req = req.Name(name)
	}
	reply := req.Do(ctx)
	if err := reply.Error(); err != nil {
		return nil, err
	}
	raw, err := reply.Raw()
	if err != nil {
		return nil, err
	}
	return ParseTable(raw)
}

// TableRequest asks for Agents as a table.
func (h *Hub) TableRequest(opts metav1.ListOptions) *rest.Request {
	return h.Rest.Get().NamespaceIfScoped(h.Namespace, h.Namespace != metav1.NamespaceAll).
		Resource(v1alpha1.AgentResource.Resource).
		SetHeader("Accept", tableOf).
		SpecificallyVersionedParams(&opts, metav1.ParameterCodec, metav1.SchemeGroupVersion)
}

// ParseTable reads a table as an API server answers it.
func ParseTable(raw []byte) (*metav1.Table, error) {
	var table metav1.Table
	if err := json.Unmarshal(raw, &table); err != nil {
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	if table.Kind != "Table" {
		return nil, fmt.Errorf("the server answers with a %s, not with a table", table.Kind)
	}
	return &table, nil
}

// PrintTable prints table, wide or not.
func (o *Output) PrintTable(w io.Writer, table *metav1.Table) error { return o.Tables(w).Print(table) }

// TablePrinter prints tables, and the first line and the widths of the columns once.
type TablePrinter struct {
	output *Output
	tabs   interface {
		io.Writer
		Flush() error
	}
	p printers.ResourcePrinter
}

// Tables returns a printer for tables of the same columns.
func (o *Output) Tables(w io.Writer) *TablePrinter {
	return &TablePrinter{
		output: o, tabs: printers.GetNewTabWriter(w),
		p: printers.NewTablePrinter(printers.PrintOptions{NoHeaders: o.NoHeaders, Wide: o.Value == "wide",
			WithNamespace: o.AllNamespaces}),
	}
}

// Print prints the rows of a table.
func (t *TablePrinter) Print(table *metav1.Table) error {
	if t.output.AllNamespaces { // which the printer takes of the objects
		for i := range table.Rows {
			obj := &metav1.PartialObjectMetadata{}
			if err := json.Unmarshal(table.Rows[i].Object.Raw, obj); err != nil {
				return fmt.Errorf("read the answer: %w", err)
			}
			table.Rows[i].Object.Object = obj
		}
	}
	if err := t.p.PrintObj(table, t.tabs); err != nil {
		return err
	}
	return t.tabs.Flush()
}

// Applications counts them for people.
func Applications(n int) string {
	if n == 1 {
		return "1 Application"
	}
	return fmt.Sprintf("%d Applications", n)
}

// ObjectList returns several objects as one, as kubectl prints them.
func ObjectList(items []*unstructured.Unstructured) *unstructured.UnstructuredList {
	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion("v1")
	list.SetKind("List")
	for _, item := range items {
		list.Items = append(list.Items, *item)
	}
	return list
}

// Objects prints one object as itself and several as a list.
func (o *Output) Objects(w io.Writer, items []*unstructured.Unstructured) error {
	if len(items) == 1 {
		return o.Object(w, items[0])
	}
	return o.Object(w, ObjectList(items))
}

// Structured prints what is no object of Kubernetes, as json or yaml.
func (o *Output) Structured(w io.Writer, v any) error {
	raw, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	raw = append(raw, '\n')
	if o.Value == "yaml" {
		if raw, err = yaml.JSONToYAML(raw); err != nil {
			return err
		}
	}
	_, err = w.Write(raw)
	return err
}

// StringsOf returns the texts of items.
func StringsOf[T fmt.Stringer](items []T) []string {
	out := make([]string, len(items))
	for i, item := range items {
		out[i] = item.String()
	}
	return out
}
