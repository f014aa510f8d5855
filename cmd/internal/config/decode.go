package config

import (
	"encoding"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/go-viper/mapstructure/v2"
	"github.com/knadh/koanf/v2"
)

// decode writes the value of one setting into the configuration, and returns
// what is wrong with it.
func (l *loader) decode(f field) []error {
	decoded := reflect.New(f.value.Type()) // fresh: a list or map replaces the default
	err := l.values.UnmarshalWithConf(f.key, decoded.Interface(), koanf.UnmarshalConf{
		DecoderConfig: &mapstructure.DecoderConfig{
			ErrorUnused:      true, // inside lists and maps of structs
			WeaklyTypedInput: true, // environment values and flags are text
			MatchName:        func(key, name string) bool { return key == name },
			DecodeHook: mapstructure.ComposeDecodeHookFunc(
				splitLists, refuseGuesses, mapstructure.StringToTimeDurationHookFunc(), unmarshalText),
		},
	})
	if err == nil {
		f.value.Set(decoded.Elem())
		return nil
	}
	var problems []error
	for _, fault := range faults(err) {
		problems = append(problems, &KeyError{
			Key:     f.key + fault.path,
			Problem: fmt.Sprintf("%s (%s)", fault.message(l.values.Get(f.key), f.value.Type()), l.sources[f.key]),
		})
	}
	return problems
}

// splitLists turns "a,b" into a list and "a=b,c=d" into a map where the setting
// is one; the empty text is the empty list.
func splitLists(from, to reflect.Type, data any) (any, error) {
	text, ok := data.(string)
	if !ok || from.Kind() != reflect.String || isText(to) {
		return data, nil
	}
	switch to.Kind() {
	case reflect.Slice:
		return splitComma(text), nil
	case reflect.Map:
		pairs := make(map[string]any)
		for _, pair := range splitComma(text) {
			key, value, ok := strings.Cut(pair, "=")
			if !ok {
				return nil, fmt.Errorf("%q is not a key=value pair", pair)
			}
			pairs[strings.TrimSpace(key)] = strings.TrimSpace(value)
		}
		return pairs, nil
	default:
		return data, nil
	}
}

func splitComma(text string) []string {
	parts := []string{}
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part != "" {
			parts = append(parts, part)
		}
	}
	return parts
}

// refuseGuesses stops the conversions that would silently mean something else:
// the YAML number 10 is not ten nanoseconds, 1.10 is not the text "1.1", and
// 2.5 and "" are no integers.
func refuseGuesses(from, to reflect.Type, data any) (any, error) {
	number := from.Kind() == reflect.Int || from.Kind() == reflect.Uint64 || from.Kind() == reflect.Int64 ||
		from.Kind() == reflect.Float64
	integer := to.Kind() >= reflect.Int && to.Kind() <= reflect.Uint64
	if slices.Contains(words(to), fmt.Sprint(data)) && from.Kind() == reflect.Bool {
		return fmt.Sprint(data), nil
	}
	switch {
	case to == durationType && (number || from.Kind() == reflect.Bool):
		return nil, fmt.Errorf("%v has no unit: write a duration such as 10s or 1m30s", data)
	case (isText(to) || to.Kind() == reflect.String) && (number || from.Kind() == reflect.Bool || isTime(data)):
		return nil, fmt.Errorf("%v is not text: put it in quotes", data)
	case integer && number && !fits(data, to):
		return nil, fmt.Errorf("%v is not %s", data, inWords(to))
	case to.Kind() == reflect.Bool && number:
		return nil, fmt.Errorf("%v is neither true nor false", data)
	case isScalar(to) && !isText(to) && to.Kind() != reflect.String && data == "":
		return nil, errors.New("is set to nothing: give a value, or do not set it")
	}
	return data, nil
}

// fits reports whether the integer type to can hold a number of the YAML parser.
func fits(number any, to reflect.Type) bool {
	unsigned := to.Kind() >= reflect.Uint
	switch n := number.(type) {
	case int:
		if unsigned {
			return n >= 0 && !to.OverflowUint(uint64(n))
		}
		return !to.OverflowInt(int64(n))
	case int64:
		return !unsigned && !to.OverflowInt(n)
	case uint64:
		return unsigned && !to.OverflowUint(n)
	default:
		return false // a fraction
	}
}

// isTime reports whether the YAML parser took the value for a date.
func isTime(data any) bool {
	_, ok := data.(time.Time)
	return ok
}

// unmarshalText lets values that parse themselves do so.
func unmarshalText(_, to reflect.Type, data any) (any, error) {
	text, ok := data.(string)
	if !ok || !isText(to) {
		return data, nil
	}
	parsed := reflect.New(to)
	if err := parsed.Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(text)); err != nil {
		if strings.Contains(err.Error(), text) {
			return nil, err
		}
		return nil, fmt.Errorf("%q is not valid: %w", text, err)
	}
	return parsed.Elem().Interface(), nil
}

// fault is one thing mapstructure could not decode.
type fault struct {
	path string // below the setting: "", "[0]", "[0].verb"
	err  error
}

// faults takes mapstructure's error apart, in its order.
func faults(err error) []fault {
	switch err := err.(type) { //nolint:errorlint // the tree of errors is walked here, one level each time
	case *mapstructure.DecodeError:
		path := err.Name()
		if path != "" && !strings.HasPrefix(path, "[") {
			path = delimiter + path
		}
		return []fault{{path: path, err: err.Unwrap()}}
	case interface{ Unwrap() []error }:
		var all []fault
		for _, one := range err.Unwrap() {
			all = append(all, faults(one)...)
		}
		return all
	case interface{ Unwrap() error }:
		if inner := err.Unwrap(); inner != nil {
			return faults(inner)
		}
	}
	return []fault{{err: err}}
}

// message puts the fault in words. given is the setting's raw value, t its type.
func (f fault) message(given any, t reflect.Type) string {
	var unparsable *mapstructure.ParseError
	var unconvertible *mapstructure.UnconvertibleTypeError
	switch {
	case errors.As(f.err, &unparsable):
		return fmt.Sprintf("%q is not %s", fmt.Sprint(unparsable.Value), inWords(unparsable.Expected.Type()))
	case errors.As(f.err, &unconvertible):
		return fmt.Sprintf("%v is not %s", oneLine(fmt.Sprint(unconvertible.Value)), inWords(unconvertible.Expected.Type()))
	case t == durationType && strings.HasPrefix(f.err.Error(), "time:"):
		return fmt.Sprintf("%q is not %s", fmt.Sprint(given), inWords(t))
	default:
		return oneLine(f.err.Error())
	}
}

// inWords says what values of t look like.
func inWords(t reflect.Type) string {
	if t == durationType {
		return "a duration such as 10s or 1m30s"
	}
	if isText(t) {
		return "one line of text"
	}
	switch t.Kind() {
	case reflect.String:
		return "text"
	case reflect.Bool:
		return "true or false"
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.Int, reflect.Int64:
		return "an integer"
	case reflect.Uint, reflect.Uint64:
		return "an integer from 0 on"
	case reflect.Uint8, reflect.Uint16, reflect.Uint32:
		return fmt.Sprintf("an integer from 0 to %d", uint64(math.MaxUint64)>>(64-t.Bits()))
	case reflect.Int8, reflect.Int16, reflect.Int32:
		limit := int64(math.MaxInt64) >> (64 - t.Bits())
		return fmt.Sprintf("an integer from %d to %d", -limit-1, limit)
	case reflect.Slice, reflect.Array:
		return "a list"
	default:
		return "a mapping of keys to values"
	}
}
