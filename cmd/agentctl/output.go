package main

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

// output is the choice of -o. Empty means a table, or one line that says what was
// done.
type output struct {
	oneOf
	noHeaders bool
	// allNamespaces says that tables name the namespace.
	allNamespaces bool
}

// jsonPath begins a format that prints what a template of JSONPath picks, as with kubectl.
const jsonPath = "jsonpath="

// jsonPathFormat is how the help has it.
const jsonPathFormat = jsonPath + "TEMPLATE"

// Set implements pflag.Value.
func (o *output) Set(s string) error {
	template, is := strings.CutPrefix(s, jsonPath)
	if !is || !slices.Contains(o.allowed, jsonPathFormat) {
		return o.oneOf.Set(s)
	}
	if _, err := printers.NewJSONPathPrinter(template); err != nil {
		return fmt.Errorf("the template of JSONPath: %s", oneLine(err))
	}
	o.value = s
	return nil
}

func newOutput(formats ...string) *output {
	return &output{oneOf: oneOf{allowed: formats}}
}

func (o *output) addFlag(cmd *cobra.Command) {
	cmd.Flags().VarP(o, "output", "o", "print as "+joinOr(o.allowed))
	register(cmd, "output", o.complete)
}

// isTable reports whether the server's columns are printed.
func (o *output) isTable() bool { return o.value == "" || o.value == "wide" }

// done prints an object after something was done to it.
func (o *output) done(w io.Writer, obj *unstructured.Unstructured, what string) error {
	if o.value == "" {
		return (&printers.NamePrinter{Operation: what}).PrintObj(obj, w)
	}
	return o.object(w, obj)
}

// object prints an object or a list in a form that is no table.
func (o *output) object(w io.Writer, obj runtime.Object) error {
	var p printers.ResourcePrinter
	template, isTemplate := strings.CutPrefix(o.value, jsonPath)
	switch {
	case isTemplate:
		picks, err := printers.NewJSONPathPrinter(template)
		if err != nil {
			return err
		}
		picks.AllowMissingKeys(true)
		p = picks
	case o.value == "json":
		p = &printers.JSONPrinter{}
	case o.value == "yaml":
		p = yamlPrinter{}
	case o.value == "name":
		p = &printers.NamePrinter{ShortOutput: true}
	default:
		return fmt.Errorf("output %q prints no objects", o.value) // unreachable: the flag knows what is allowed
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
	_, err = beneath(w).Write(encoded)
	return err
}

// tableOf is the Accept header that asks the server for the columns the CRD
// defines, as kubectl does.
const tableOf = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"

// table asks the server for Agents as a table: all that match opts, or one when
// name is not empty.
func (h *hub) table(ctx context.Context, name string, opts metav1.ListOptions) (*metav1.Table, error) {
	req := h.tableRequest(opts)
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
	return parseTable(raw)
}

// tableRequest asks for Agents as a table.
func (h *hub) tableRequest(opts metav1.ListOptions) *rest.Request {
	return h.rest.Get().NamespaceIfScoped(h.namespace, h.namespace != metav1.NamespaceAll).Resource(v1alpha1.AgentResource.Resource).
		SetHeader("Accept", tableOf).
		SpecificallyVersionedParams(&opts, metav1.ParameterCodec, metav1.SchemeGroupVersion)
}

func parseTable(raw []byte) (*metav1.Table, error) {
	var table metav1.Table
	if err := json.Unmarshal(raw, &table); err != nil {
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	if table.Kind != "Table" {
		return nil, fmt.Errorf("the server answers with a %s, not with a table", table.Kind)
	}
	return &table, nil
}

// printTable prints table, wide or not.
func (o *output) printTable(w io.Writer, table *metav1.Table) error { return o.tables(w).print(table) }

// tablePrinter prints tables, and the first line and the widths of the columns once.
type tablePrinter struct {
	output *output
	tabs   interface {
		io.Writer
		Flush() error
	}
	p printers.ResourcePrinter
}

func (o *output) tables(w io.Writer) *tablePrinter {
	return &tablePrinter{
		output: o, tabs: printers.GetNewTabWriter(w),
		p: printers.NewTablePrinter(printers.PrintOptions{NoHeaders: o.noHeaders, Wide: o.value == "wide", WithNamespace: o.allNamespaces}),
	}
}

func (t *tablePrinter) print(table *metav1.Table) error {
	if t.output.allNamespaces { // which the printer takes of the objects
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
