package config

import (
	"encoding"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"
)

// keyConfig is the reserved key that names the YAML file.
const keyConfig = "config"

// reserved are the flags every program has, so no setting may be called so.
var reserved = []string{keyConfig, "help", "version"}

// form says how a setting is written in an environment variable or a flag.
type form int

const (
	formScalar   form = iota // one value
	formList                 // values with commas between them
	formMap                  // key=value pairs with commas between them
	formFileOnly             // nested: the YAML file only
)

// field is one setting.
type field struct {
	key      string        // "stream.listen"
	value    reflect.Value // addressable; holds the default until a layer sets it
	form     form
	help     string // tag `help`
	fallback string // tag `env`: a variable other programs agreed on, or ""
}

// schema is what a configuration struct declares.
type schema struct {
	fields   []field // in the order of the struct
	byKey    map[string]field
	sections map[string]bool // keys that hold further keys
}

func newSchema(config reflect.Value) (*schema, error) {
	if config.Kind() != reflect.Struct {
		return nil, fmt.Errorf("%s is not a struct", config.Type())
	}
	s := &schema{byKey: make(map[string]field), sections: make(map[string]bool)}
	if err := s.add(config, ""); err != nil {
		return nil, err
	}
	return s, nil
}

// add declares the fields of one struct under section.
func (s *schema) add(config reflect.Value, section string) error {
	var problems []error
	for i := range config.NumField() {
		declared := config.Type().Field(i)
		if !declared.IsExported() {
			continue
		}
		where := config.Type().String() + "." + declared.Name
		name := declared.Tag.Get("koanf")
		if name == "" || strings.ContainsAny(name, ".,") || strings.ToLower(name) != name || strings.Contains(name, "__") {
			problems = append(problems, fmt.Errorf("field %s: koanf tag %q is not one lower-case key segment", where, name))
			continue
		}
		key := join(section, name)
		if slices.Contains(reserved, key) || s.sections[key] || s.byKey[key].key != "" {
			problems = append(problems, fmt.Errorf("field %s: key %q is taken", where, key))
			continue
		}
		value := config.Field(i)
		if value.Kind() == reflect.Struct && !isText(value.Type()) {
			s.sections[key] = true
			problems = append(problems, s.add(value, key))
			continue
		}
		f := field{
			key: key, value: value, form: formOf(value.Type()),
			help: declared.Tag.Get("help"), fallback: declared.Tag.Get("env"),
		}
		s.fields = append(s.fields, f)
		s.byKey[key] = f
	}
	return errors.Join(problems...)
}

// overlay writes the settings of layer over those in below. Sections are merged,
// settings replaced; a null sets nothing.
func (s *schema) overlay(layer, below map[string]any, section string) {
	for name, value := range layer {
		key := join(section, name)
		inner, isMapping := value.(map[string]any)
		switch {
		case value == nil:
		case s.sections[key] && isMapping:
			under, ok := below[name].(map[string]any)
			if !ok {
				under = make(map[string]any)
				below[name] = under
			}
			s.overlay(inner, under, key)
		default:
			below[name] = value
		}
	}
}

var (
	textUnmarshaler = reflect.TypeFor[encoding.TextUnmarshaler]()
	durationType    = reflect.TypeFor[time.Duration]()
)

// isText reports whether values of t parse themselves.
func isText(t reflect.Type) bool { return reflect.PointerTo(t).Implements(textUnmarshaler) }

// words returns the values of t, where it lists them. Of those true and false may be
// written as YAML has them.
func words(t reflect.Type) []string {
	if w, ok := reflect.Zero(t).Interface().(interface{ Words() []string }); ok && isText(t) {
		return w.Words()
	}
	return nil
}

// isChoice reports whether a setting is true, false, or nil where no one set it.
func isChoice(t reflect.Type) bool { return t == reflect.TypeFor[*bool]() }

func formOf(t reflect.Type) form {
	switch {
	case isScalar(t):
		return formScalar
	case t.Kind() == reflect.Slice && isScalar(t.Elem()):
		return formList
	case t.Kind() == reflect.Map && isScalar(t.Key()) && isScalar(t.Elem()):
		return formMap
	default:
		return formFileOnly
	}
}

func isScalar(t reflect.Type) bool {
	if isText(t) || isChoice(t) {
		return true
	}
	switch t.Kind() {
	case reflect.String, reflect.Bool, reflect.Float32, reflect.Float64,
		reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return true
	default:
		return false
	}
}

// typeName is how the help text calls values of t.
func typeName(t reflect.Type) string {
	switch {
	case t == durationType:
		return "duration"
	case len(words(t)) > 0:
		return strings.Join(words(t), "|")
	case isText(t):
		return "text"
	}
	switch formOf(t) {
	case formList:
		return typeName(t.Elem()) + ",..."
	case formMap:
		return "key=" + typeName(t.Elem()) + ",..."
	case formFileOnly:
		return "YAML"
	case formScalar:
	}
	switch t.Kind() {
	case reflect.String:
		return "text"
	case reflect.Bool, reflect.Pointer:
		return "true|false"
	case reflect.Float32, reflect.Float64:
		return "number"
	default:
		return "integer"
	}
}

func join(section, name string) string {
	if section == "" {
		return name
	}
	return section + delimiter + name
}

// envPrefix is what the environment variables of a program begin with. The
// double underscore keeps clear of the service variables Kubernetes injects.
func envPrefix(program string) string {
	return strings.ToUpper(strings.ReplaceAll(program, "-", "_")) + "__"
}

func envName(prefix, key string) string {
	return prefix + strings.ToUpper(strings.ReplaceAll(key, delimiter, "__"))
}
