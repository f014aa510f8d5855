package config

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// Reference returns the manual of a program's settings as Markdown: what --help says,
// and what is below the settings that only the file can give. A setting without help
// text is an error. T is as in [Load].
func Reference[T any](program Program, defaults T) (string, error) {
	schema, err := newSchema(reflect.ValueOf(&defaults).Elem())
	if err != nil {
		return "", fmt.Errorf("describe the settings of %s: %w", program.Name, err)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "# Configuration of %s\n\n", program.Name)
	b.WriteString("Made from the code by `make generate`.\n\n")
	fmt.Fprintf(&b,
		"Settings come from the defaults, the YAML file named by `--config` (or `%s`), the environment and the flags; later ones\n"+
			"win. In the file the parts of a key between dots are nested. The key `log.level` is the flag `--log.level` and the variable\n"+
			"`%s`. An unknown key stops the start.\n", envName(envPrefix(program.Name), keyConfig),
		envName(envPrefix(program.Name), "log.level"))
	section := "\x00"
	for _, f := range schema.fields {
		top, _, nested := strings.Cut(f.key, delimiter)
		if !nested {
			top = ""
		}
		if top != section {
			section = top
			title := "`" + top + "`"
			if top == "" {
				title = "General"
			}
			if strings.Contains(b.String(), "\n## "+title+"\n") {
				return "", fmt.Errorf("the settings of %s are in two places: keep them together", title)
			}
			fmt.Fprintf(&b, "\n## %s\n\n| Key | Type | Default | Meaning |\n|---|---|---|---|\n", title)
		}
		if err := writeRow(&b, f, f.key); err != nil {
			return "", err
		}
	}
	return b.String(), nil
}

// writeRow writes one setting, and what is below it.
func writeRow(b *strings.Builder, f field, key string) error {
	if f.help == "" {
		return fmt.Errorf("setting %s has no help text", key)
	}
	help := f.help
	if f.fallback != "" {
		help += "; without it, variable `" + f.fallback + "`"
	}
	value := formatDefault(f.value)
	if value != "" {
		value = "`" + value + "`"
	}
	kind := typeName(f.value.Type())
	below, err := elements(f.value.Type())
	if err != nil {
		return err
	}
	if below != nil {
		kind, help = "list", help+"; in the file only"
	}
	cells := []string{"`" + key + "`", kind, value, help}
	for i := range cells {
		cells[i] = strings.ReplaceAll(cells[i], "|", `\|`)
	}
	fmt.Fprintf(b, "| %s |\n", strings.Join(cells, " | "))
	if below == nil {
		return nil
	}
	var problems []error
	for _, inner := range below.fields {
		problems = append(problems, writeRow(b, inner, key+"[]."+inner.key))
	}
	return errors.Join(problems...)
}

// elements returns what the elements of a list have; nil for what is no list of
// sections.
func elements(t reflect.Type) (*schema, error) {
	if t.Kind() != reflect.Slice || t.Elem().Kind() != reflect.Struct || isText(t.Elem()) {
		return nil, nil //nolint:nilnil // documented
	}
	return newSchema(reflect.New(t.Elem()).Elem())
}

// JSONSchema returns the JSON schema of a configuration file, without the keys that
// someone else sets. What values mean is not in it: that is checked at the start.
func JSONSchema[T any](defaults T, without ...string) (map[string]any, error) {
	schema, err := newSchema(reflect.ValueOf(&defaults).Elem())
	if err != nil {
		return nil, err
	}
	for _, key := range without {
		if _, known := schema.byKey[key]; !known {
			return nil, fmt.Errorf("there is no setting %s to leave out", key)
		}
	}
	return objectSchema(schema, without)
}

func objectSchema(s *schema, without []string) (map[string]any, error) {
	root := closedObject()
	for _, f := range s.fields {
		if slices.Contains(without, f.key) {
			continue
		}
		at := root
		segments := strings.Split(f.key, delimiter)
		for _, segment := range segments[:len(segments)-1] {
			properties := at["properties"].(map[string]any)
			if properties[segment] == nil {
				properties[segment] = closedObject()
			}
			at = properties[segment].(map[string]any)
		}
		one, err := valueSchema(f.value.Type())
		if err != nil {
			return nil, err
		}
		if f.help != "" {
			one["description"] = f.help
		}
		at["properties"].(map[string]any)[segments[len(segments)-1]] = one
	}
	return root, nil
}

func closedObject() map[string]any {
	return map[string]any{"type": "object", "additionalProperties": false, "properties": map[string]any{}}
}

func valueSchema(t reflect.Type) (map[string]any, error) {
	below, err := elements(t)
	if err != nil {
		return nil, err
	}
	if below != nil {
		items, err := objectSchema(below, nil)
		return map[string]any{"type": "array", "items": items}, err
	}
	switch formOf(t) {
	case formList:
		items, err := valueSchema(t.Elem())
		return map[string]any{"type": "array", "items": items}, err
	case formMap:
		values, err := valueSchema(t.Elem())
		return map[string]any{"type": "object", "additionalProperties": values}, err
	case formFileOnly:
		return map[string]any{}, nil
	case formScalar:
	}
	switch {
	case t == durationType: // "0" may be written without a unit
		return map[string]any{"type": []string{"string", "integer"}}, nil
	case len(words(t)) > 0:
		return map[string]any{"enum": wordSchema(words(t))}, nil
	case isText(t):
		return map[string]any{"type": "string"}, nil
	}
	switch t.Kind() {
	case reflect.String:
		return map[string]any{"type": "string"}, nil
	case reflect.Bool, reflect.Pointer:
		return map[string]any{"type": "boolean"}, nil
	case reflect.Float32, reflect.Float64:
		return map[string]any{"type": "number"}, nil
	default:
		return map[string]any{"type": "integer"}, nil
	}
}

// wordSchema is how YAML has the words.
func wordSchema(words []string) []any {
	out := make([]any, len(words))
	for i, word := range words {
		out[i] = word
		if word == "true" || word == "false" {
			out[i] = word == "true"
		}
	}
	return out
}
